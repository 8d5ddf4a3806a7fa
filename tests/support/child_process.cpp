#include "tests/support/child_process.h"
#include "base/child_process.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"

namespace tq::test {

Finished run(const Command& command) {
    const TemporaryFile input(command.input), output, error;
    ChildProcess child(command.arguments, command.environment, {input.path(), output.path(), error.path()});
    const auto status = child.wait(std::chrono::hours(1));
    return {status.value_or(-1), slurp(output.path()), slurp(error.path())};
}

Finished tq_run(std::vector<std::string> arguments, std::string input, std::vector<std::string> environment) {
    arguments.insert(arguments.begin(), TQ_RUN);
    return run({std::move(arguments), std::move(input), std::move(environment)});
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
