#include "tests/child_process.h"
#include "tests/temporary_file.h"
#include <cstdlib>
#include <iterator>
#ifndef _WIN32
#include <sys/wait.h>
#endif

namespace tq::test {
namespace {

std::string slurp(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

std::string quoted(const std::string& text) {
#ifdef _WIN32
    return '"' + text + '"'; // the tests use no quotes of their own
#else
    std::string result = "'";
    for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return result + "'";
#endif
}

int exit_status(int of_system) {
#ifdef _WIN32
    return of_system;
#else
    return WIFEXITED(of_system) ? WEXITSTATUS(of_system) : 128 + WTERMSIG(of_system);
#endif
}

std::string line(const Command& command) {
    std::string text;
    for (const std::string& variable : command.environment) {
#ifdef _WIN32
        text += "set " + quoted(variable) + " && ";
#else
        const size_t name_end = variable.find('=') + 1;
        text += variable.substr(0, name_end) + quoted(variable.substr(name_end)) + ' ';
#endif
    }
    for (const std::string& argument : command.arguments) text += quoted(argument) + ' ';
    return text;
}

} // namespace

Finished run(const Command& command) {
    const TemporaryFile input(command.input), output, error;
    const auto file = [](const TemporaryFile& f) { return quoted(f.path().string()); };
    const std::string redirected = line(command) + "<" + file(input) + " >" + file(output) + " 2>" + file(error);
    const int status = exit_status(std::system(redirected.c_str()));
    return {status, slurp(output.path()), slurp(error.path())};
}

Finished run_in_shell(const Command& command, const std::string& shell) {
    const TemporaryFile output;
    Command wrapped{{"sh", "-c", "out=$1; shift; " + shell, "sh", output.path().string()}, command.input, command.environment};
    wrapped.arguments.insert(wrapped.arguments.end(), command.arguments.begin(), command.arguments.end());
    Finished finished = run(wrapped);
    finished.output = slurp(output.path());
    return finished;
}

} // namespace tq::test
