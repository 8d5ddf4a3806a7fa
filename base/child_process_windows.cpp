#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include "base/child_process.h"
#include "base/error.h"
#include <cstdlib>
#include <thread>
#include <windows.h>

namespace tq {

struct ChildProcess::Impl {
    HANDLE process = nullptr, output = nullptr; // output: the reading end of the pipe

    ~Impl() {
        for (const HANDLE handle : {process, output})
            if (handle != nullptr) ::CloseHandle(handle);
    }
};

namespace {

std::wstring wide(const std::string& utf8) {
    std::wstring out(size_t(::MultiByteToWideChar(CP_UTF8, 0, utf8.data(), int(utf8.size()), nullptr, 0)), L'\0');
    ::MultiByteToWideChar(CP_UTF8, 0, utf8.data(), int(utf8.size()), out.data(), int(out.size()));
    return out;
}

// Quotes an argument so that CommandLineToArgvW restores it: backslashes count only before a quote.
std::wstring quoted(const std::wstring& argument) {
    std::wstring out = L"\"";
    size_t backslashes = 0;
    for (const wchar_t c : argument) {
        if (c == L'"') out.append(backslashes + 1, L'\\');
        backslashes = c == L'\\' ? backslashes + 1 : 0;
        out += c;
    }
    return out.append(backslashes, L'\\') + L'"';
}

std::string narrow(const wchar_t* text) {
    std::string out(size_t(::WideCharToMultiByte(CP_UTF8, 0, text, -1, nullptr, 0, nullptr, nullptr)), '\0');
    ::WideCharToMultiByte(CP_UTF8, 0, text, -1, out.data(), int(out.size()), nullptr, nullptr);
    out.resize(out.size() - 1); // removes the terminating zero
    return out;
}

// Returns the environment for CreateProcess: each text ends with a zero, and another zero follows the last.
std::wstring environment_block(const std::vector<std::string>& variables) {
    std::wstring out;
    for (const std::string& variable : variables) out += wide(variable) + L'\0';
    return out + L'\0';
}

struct Handle {
    HANDLE handle = INVALID_HANDLE_VALUE;
    Handle() = default;
    Handle(const Handle&) = delete;
    ~Handle() {
        if (handle != INVALID_HANDLE_VALUE) ::CloseHandle(handle);
    }
    void open(const std::filesystem::path& file, bool write) {
        SECURITY_ATTRIBUTES inherited{sizeof inherited, nullptr, TRUE};
        handle = ::CreateFileW(file.c_str(), write ? GENERIC_WRITE : GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE, &inherited,
                               write ? CREATE_ALWAYS : OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, nullptr);
        if (handle == INVALID_HANDLE_VALUE) fail("cannot open {} (error {})", file.string(), ::GetLastError());
    }
};

// Returns the process's handle.
HANDLE create(const std::vector<std::string>& arguments, const std::vector<std::string>& environment, STARTUPINFOW& startup,
              DWORD flags) {
    std::wstring line, block = environment_block(merged_environment(environment));
    for (const std::string& argument : arguments) line += quoted(wide(argument)) + L' ';
    PROCESS_INFORMATION started{};
    if (!::CreateProcessW(nullptr, line.data(), nullptr, nullptr, TRUE, CREATE_UNICODE_ENVIRONMENT | flags, block.data(), nullptr,
                          &startup, &started))
        fail("cannot start {} (error {})", arguments[0], ::GetLastError());
    ::CloseHandle(started.hThread);
    return started.hProcess;
}

BOOL WINAPI ignore_event(DWORD) { return TRUE; }

} // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
                           const Redirection& files)
    : impl_(std::make_unique<Impl>()) {
    SECURITY_ATTRIBUTES inherited{sizeof inherited, nullptr, TRUE};
    Handle pipe, input, output, error;
    if (!::CreatePipe(&impl_->output, &pipe.handle, &inherited, 0)) fail("cannot make a pipe (error {})", ::GetLastError());
    ::SetHandleInformation(impl_->output, HANDLE_FLAG_INHERIT, 0);
    input.open(files.input.empty() ? "NUL" : files.input, false);
    if (!files.output.empty()) output.open(files.output, true);
    if (!files.error.empty()) error.open(files.error, true);

    STARTUPINFOW startup{};
    startup.cb = sizeof startup;
    startup.dwFlags = STARTF_USESTDHANDLES;
    startup.hStdInput = input.handle;
    startup.hStdOutput = files.output.empty() ? pipe.handle : output.handle;
    startup.hStdError = files.error.empty() ? pipe.handle : error.handle;
    impl_->process = create(arguments, environment, startup, files.own_group ? CREATE_NEW_PROCESS_GROUP : 0);
}

ChildProcess::~ChildProcess() {
    if (wait(std::chrono::milliseconds(0))) return;
    kill();
    wait(std::chrono::seconds(5));
}

// An anonymous pipe cannot be waited for with a timeout, so it is polled.
bool ChildProcess::read_more(std::chrono::milliseconds timeout) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (true) {
        DWORD available = 0;
        if (!::PeekNamedPipe(impl_->output, nullptr, 0, nullptr, &available, nullptr)) return false;
        if (available != 0) break;
        if (std::chrono::steady_clock::now() >= deadline) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    char block[4096];
    DWORD bytes = 0;
    if (!::ReadFile(impl_->output, block, sizeof block, &bytes, nullptr)) return false;
    unread_.append(block, bytes);
    return true;
}

void ChildProcess::kill() { ::TerminateProcess(impl_->process, 1); }
void ChildProcess::ask_to_end() { kill(); }

std::optional<int> ChildProcess::wait(std::chrono::milliseconds timeout) {
    DWORD status = 0;
    if (::WaitForSingleObject(impl_->process, DWORD(timeout.count())) != WAIT_OBJECT_0) return std::nullopt;
    return ::GetExitCodeProcess(impl_->process, &status) ? int(status) : -1;
}

int run_in_foreground(const std::vector<std::string>& arguments, const std::vector<std::string>& environment) {
    STARTUPINFOW startup{};
    startup.cb = sizeof startup;
    Handle process;
    process.handle = create(arguments, environment, startup, 0);
    ::SetConsoleCtrlHandler(ignore_event, TRUE);
    ::WaitForSingleObject(process.handle, INFINITE);
    ::SetConsoleCtrlHandler(ignore_event, FALSE);
    DWORD status = 0;
    return ::GetExitCodeProcess(process.handle, &status) ? int(status) : -1;
}

std::vector<std::string> environment_variables() {
    std::vector<std::string> all;
    wchar_t* const block = ::GetEnvironmentStringsW();
    for (const wchar_t* entry = block; *entry != 0; entry += std::wcslen(entry) + 1) all.push_back(narrow(entry));
    ::FreeEnvironmentStringsW(block);
    return all;
}

// The C library's copy, which std::getenv reads, and the system's, which the Vulkan loader reads.
void set_environment_variable(const std::string& name, const std::string& value) {
    ::_wputenv_s(wide(name).c_str(), wide(value).c_str());
}

std::string describe_exit(int status) {
    return status < 0 ? fmt::format("exception {:#010X}", uint32_t(status)) : fmt::format("exit status {}", status);
}

} // namespace tq
