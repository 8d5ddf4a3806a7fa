// Children by posix_spawn, which is safe in a program with threads: nothing of ours runs between fork and exec.
// A child's output comes through a pipe. Both ends are marked close-on-exec, so that another child, which another thread may
// start meanwhile, does not inherit the writing end: its reader would wait for both. (pipe2 would close the small gap between
// making and marking, but macOS has none.)
// Waiting is polling. A program that waits for a child must see a Ctrl-C meanwhile, and SIGCHLD would be one more handler that
// the whole process shares.
// A status is that of shells: 128 + N for a child that signal N ended.
#include "base/child_process.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/interrupt.h"
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace tq {

struct ChildProcess::Impl {
    pid_t pid = -1;
    int output = -1; // the reading end of the pipe
    std::optional<int> status;

    ~Impl() {
        if (output >= 0) ::close(output);
    }
};

namespace {

std::vector<char*> pointers(std::vector<std::string>& texts) {
    std::vector<char*> out;
    for (std::string& text : texts) out.push_back(text.data());
    out.push_back(nullptr);
    return out;
}

struct FileActions {
    posix_spawn_file_actions_t actions;
    FileActions() { ::posix_spawn_file_actions_init(&actions); }
    ~FileActions() { ::posix_spawn_file_actions_destroy(&actions); }

    void open(int stream, const std::filesystem::path& file, int flags) {
        ::posix_spawn_file_actions_addopen(&actions, stream, file.c_str(), flags, 0600);
    }
    void copy(int from, int to) { ::posix_spawn_file_actions_adddup2(&actions, from, to); }
};

struct Attributes {
    posix_spawnattr_t attributes;
    Attributes() { ::posix_spawnattr_init(&attributes); }
    ~Attributes() { ::posix_spawnattr_destroy(&attributes); }
    void flags(short flags) { ::posix_spawnattr_setflags(&attributes, flags); }
};

pid_t spawn(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
            const posix_spawn_file_actions_t* actions, const Attributes& attributes) {
    std::vector<std::string> argument_texts = arguments, environment_texts = merged_environment(environment);
    pid_t pid = -1;
    const int error = ::posix_spawnp(&pid, arguments.at(0).c_str(), actions, &attributes.attributes,
                                     pointers(argument_texts).data(), pointers(environment_texts).data());
    if (error != 0) fail("cannot start {}: {}", arguments[0], std::strerror(error));
    return pid;
}

int exit_status(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

// Ignores signals while it exists.
class Ignored {
  public:
    Ignored() {
        struct sigaction ignore = {};
        ignore.sa_handler = SIG_IGN;
        sigemptyset(&ignore.sa_mask);
        for (size_t i = 0; i < signals.size(); i++) ::sigaction(signals[i], &ignore, &before_[i]);
    }
    ~Ignored() {
        for (size_t i = 0; i < signals.size(); i++) ::sigaction(signals[i], &before_[i], nullptr);
    }

    static constexpr std::array signals{SIGINT, SIGQUIT, SIGHUP};

  private:
    std::array<struct sigaction, signals.size()> before_;
};

// Makes a pipe. The child inherits only the end that FileActions::copy gives it.
void make_pipe(int (&ends)[2]) {
    if (::pipe(ends) != 0) fail("cannot make a pipe: {}", std::strerror(errno));
    for (const int end : ends) ::fcntl(end, F_SETFD, FD_CLOEXEC);
}

} // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
                           const Redirection& files)
    : impl_(std::make_unique<Impl>()) {
    int ends[2];
    make_pipe(ends);
    impl_->output = ends[0];
    FileActions actions;
    const int writing = O_WRONLY | O_CREAT | O_TRUNC;
    actions.open(STDIN_FILENO, files.input.empty() ? "/dev/null" : files.input, O_RDONLY);
    files.output.empty() ? actions.copy(ends[1], STDOUT_FILENO) : actions.open(STDOUT_FILENO, files.output, writing);
    files.error.empty() ? actions.copy(ends[1], STDERR_FILENO) : actions.open(STDERR_FILENO, files.error, writing);

    Attributes attributes;
    if (files.own_group) attributes.flags(POSIX_SPAWN_SETPGROUP); // its number: the child's own
    try {
        impl_->pid = spawn(arguments, environment, &actions.actions, attributes);
    } catch (const Error&) {
        ::close(ends[1]);
        throw;
    }
    ::close(ends[1]);
}

ChildProcess::~ChildProcess() {
    if (wait(std::chrono::milliseconds(0))) return;
    kill();
    wait(std::chrono::seconds(5)); // longer only if a driver holds on to it
}

bool ChildProcess::read_more(std::chrono::milliseconds timeout) {
    pollfd waiting{impl_->output, POLLIN, 0};
    if (::poll(&waiting, 1, int(timeout.count())) <= 0) return true;
    char block[4096];
    const ssize_t bytes = ::read(impl_->output, block, sizeof block);
    if (bytes < 0) return errno == EINTR || errno == EAGAIN;
    unread_.append(block, size_t(bytes));
    return bytes > 0;
}

void ChildProcess::kill() {
    if (!impl_->status) ::kill(impl_->pid, SIGKILL);
}

void ChildProcess::ask_to_end() {
    if (!impl_->status) ::kill(impl_->pid, SIGTERM);
}

std::optional<int> ChildProcess::wait(std::chrono::milliseconds timeout) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (!impl_->status) {
        int status = 0;
        if (::waitpid(impl_->pid, &status, WNOHANG) == impl_->pid)
            impl_->status = exit_status(status);
        else if (std::chrono::steady_clock::now() >= deadline)
            return std::nullopt;
        else
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return impl_->status;
}

// Like a shell: Ctrl-C reaches the child, which is in the terminal's foreground group with this process, and this process ignores
// it. Ignored signals would be inherited through exec, so they are reset in the child. A termination that somebody sends to this
// process alone is passed on, once.
int run_in_foreground(const std::vector<std::string>& arguments, const std::vector<std::string>& environment) {
    const Ignored ignored;
    Attributes attributes;
    attributes.flags(POSIX_SPAWN_SETSIGDEF); // what is ignored here would be ignored there
    sigset_t defaults;
    sigemptyset(&defaults);
    for (const int signal : Ignored::signals) sigaddset(&defaults, signal);
    ::posix_spawnattr_setsigdefault(&attributes.attributes, &defaults);
    const pid_t pid = spawn(arguments, environment, nullptr, attributes);
    int status = 0;
    for (bool told = false; ::waitpid(pid, &status, WNOHANG) != pid;) {
        if (interrupted() && !std::exchange(told, true)) ::kill(pid, SIGTERM);
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return exit_status(status);
}

std::string describe_exit(int status) {
    if (status <= 128) return fmt::format("exit status {}", status);
    return fmt::format("signal {} ({})", status - 128, ::strsignal(status - 128));
}

} // namespace tq
