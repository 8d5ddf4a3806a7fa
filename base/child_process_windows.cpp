// Children by CreateProcess. Three things differ from POSIX. Arguments are one line of text, which the child cuts up again by the
// rules of its C library (quoted()). Handles are inherited or not for the whole process, so each child gets a list of its own
// (Inherited). There are no signals: a child in a group of its own is asked to end by Ctrl-Break, any other is terminated.
#include "base/child_process.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/path_text.h"
#include "base/wide_text.h"
#include "base/windows_handle.h"
#include <thread>

namespace tq {

struct ChildProcess::Impl {
    WindowsHandle process, output; // output: the reading end of the pipe
    DWORD id = 0;
    bool own_group = false;
};

namespace {

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

// Returns the environment for CreateProcess: each text ends with a zero, and another zero follows the last.
std::wstring environment_block(const std::vector<std::string>& variables) {
    std::wstring out;
    for (const std::string& variable : variables) out += wide_text(variable) + L'\0';
    return out + L'\0';
}

HANDLE open_inherited(const std::filesystem::path& file, bool write) {
    SECURITY_ATTRIBUTES inherited{sizeof inherited, nullptr, TRUE};
    const HANDLE handle = ::CreateFileW(file.c_str(), write ? GENERIC_WRITE : GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE,
                                        &inherited, write ? CREATE_ALWAYS : OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, nullptr);
    if (handle == INVALID_HANDLE_VALUE) fail("cannot open {} (error {})", utf8_text(file), ::GetLastError());
    return handle;
}

// Handles of this process that a child inherits, and no others. A child that another thread starts at the same moment must not
// get the writing end of this one's pipe, whose reader would wait for both.
class Inherited {
  public:
    explicit Inherited(std::vector<HANDLE> handles) : handles_(std::move(handles)) {
        SIZE_T bytes = 0;
        ::InitializeProcThreadAttributeList(nullptr, 1, 0, &bytes);
        storage_.resize(bytes);
        if (!::InitializeProcThreadAttributeList(list(), 1, 0, &bytes))
            fail("cannot start a process (error {})", ::GetLastError());
        ::UpdateProcThreadAttribute(list(), 0, PROC_THREAD_ATTRIBUTE_HANDLE_LIST, handles_.data(),
                                    handles_.size() * sizeof(HANDLE), nullptr, nullptr);
    }
    ~Inherited() { ::DeleteProcThreadAttributeList(list()); }
    Inherited(const Inherited&) = delete;
    Inherited& operator=(const Inherited&) = delete;
    LPPROC_THREAD_ATTRIBUTE_LIST list() { return reinterpret_cast<LPPROC_THREAD_ATTRIBUTE_LIST>(storage_.data()); }

  private:
    std::vector<HANDLE> handles_;
    std::vector<std::byte> storage_;
};

PROCESS_INFORMATION create(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
                           STARTUPINFOW& startup, DWORD flags) {
    std::wstring line, block = environment_block(merged_environment(environment));
    for (const std::string& argument : arguments) line += quoted(wide_text(argument)) + L' ';
    PROCESS_INFORMATION started{};
    if (!::CreateProcessW(nullptr, line.data(), nullptr, nullptr, TRUE, CREATE_UNICODE_ENVIRONMENT | flags, block.data(), nullptr,
                          &startup, &started))
        fail("cannot start {} (error {})", arguments[0], ::GetLastError());
    ::CloseHandle(started.hThread);
    return started;
}

BOOL WINAPI ignore_event(DWORD) { return TRUE; }

} // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
                           const Redirection& files)
    : impl_(std::make_unique<Impl>()) {
    SECURITY_ATTRIBUTES inherited{sizeof inherited, nullptr, TRUE};
    WindowsHandle pipe;
    if (!::CreatePipe(&impl_->output.handle, &pipe.handle, &inherited, 0))
        fail("cannot make a pipe (error {})", ::GetLastError());
    ::SetHandleInformation(impl_->output.handle, HANDLE_FLAG_INHERIT, 0);
    const WindowsHandle input(open_inherited(files.input.empty() ? L"NUL" : files.input, false)),
        output(files.output.empty() ? nullptr : open_inherited(files.output, true)),
        error(files.error.empty() ? nullptr : open_inherited(files.error, true));

    STARTUPINFOEXW startup{};
    startup.StartupInfo.cb = sizeof startup;
    startup.StartupInfo.dwFlags = STARTF_USESTDHANDLES;
    startup.StartupInfo.hStdInput = input.handle;
    startup.StartupInfo.hStdOutput = output.valid() ? output.handle : pipe.handle;
    startup.StartupInfo.hStdError = error.valid() ? error.handle : pipe.handle;
    std::vector<HANDLE> all{input.handle};
    for (const HANDLE one : {pipe.handle, output.handle, error.handle})
        if (one != nullptr) all.push_back(one);
    Inherited only(std::move(all));
    startup.lpAttributeList = only.list();
    impl_->own_group = files.own_group;
    const PROCESS_INFORMATION started =
        create(arguments, environment, startup.StartupInfo,
               EXTENDED_STARTUPINFO_PRESENT | (files.own_group ? DWORD(CREATE_NEW_PROCESS_GROUP) : 0));
    impl_->process.handle = started.hProcess;
    impl_->id = started.dwProcessId;
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
        if (!::PeekNamedPipe(impl_->output.handle, nullptr, 0, nullptr, &available, nullptr)) return false;
        if (available != 0) break;
        if (std::chrono::steady_clock::now() >= deadline) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    char block[4096];
    DWORD bytes = 0;
    if (!::ReadFile(impl_->output.handle, block, sizeof block, &bytes, nullptr)) return false;
    unread_.append(block, bytes);
    return true;
}

void ChildProcess::kill() { ::TerminateProcess(impl_->process.handle, 1); }

// Ctrl-Break reaches only a process group of its own, and only if the group has this process's console.
void ChildProcess::ask_to_end() {
    if (!impl_->own_group || !::GenerateConsoleCtrlEvent(CTRL_BREAK_EVENT, impl_->id)) kill();
}

std::optional<int> ChildProcess::wait(std::chrono::milliseconds timeout) {
    DWORD status = 0;
    if (::WaitForSingleObject(impl_->process.handle, DWORD(timeout.count())) != WAIT_OBJECT_0) return std::nullopt;
    return ::GetExitCodeProcess(impl_->process.handle, &status) ? int(status) : -1;
}

int run_in_foreground(const std::vector<std::string>& arguments, const std::vector<std::string>& environment) {
    STARTUPINFOW startup{};
    startup.cb = sizeof startup;
    const WindowsHandle process(create(arguments, environment, startup, 0).hProcess);
    ::SetConsoleCtrlHandler(ignore_event, TRUE);
    ::WaitForSingleObject(process.handle, INFINITE);
    ::SetConsoleCtrlHandler(ignore_event, FALSE);
    DWORD status = 0;
    return ::GetExitCodeProcess(process.handle, &status) ? int(status) : -1;
}

std::string describe_exit(int status) {
    return status < 0 ? fmt::format("exception {:#010X}", uint32_t(status)) : fmt::format("exit status {}", status);
}

} // namespace tq
