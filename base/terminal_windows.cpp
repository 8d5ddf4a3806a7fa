#include "base/terminal.h"
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <initializer_list>
#include <io.h>
#include <windows.h>

namespace tq {

bool is_terminal(Stream stream) {
    return ::_isatty(::_fileno(stream == Stream::input ? stdin : stream == Stream::output ? stdout : stderr)) != 0;
}

uint32_t terminal_columns(Stream stream) {
    CONSOLE_SCREEN_BUFFER_INFO info{};
    const HANDLE handle = ::GetStdHandle(stream == Stream::error ? STD_ERROR_HANDLE : STD_OUTPUT_HANDLE);
    return ::GetConsoleScreenBufferInfo(handle, &info) ? uint32_t(info.srWindow.Right - info.srWindow.Left + 1) : 0;
}

// Ctrl-C that nobody has asked to catch ends the program with the status that shells show for it elsewhere.
static BOOL WINAPI end_program(DWORD event) {
    if (event == CTRL_C_EVENT || event == CTRL_BREAK_EVENT) ::TerminateProcess(::GetCurrentProcess(), 130);
    return FALSE;
}

// The console stays the shell's, so it gets its code pages back.
void prepare_terminal() {
    ::SetConsoleCtrlHandler(end_program, TRUE);
    static const UINT input_page = ::GetConsoleCP(), output_page = ::GetConsoleOutputCP(); // 0 if there is no console
    ::SetConsoleCP(CP_UTF8);
    ::SetConsoleOutputCP(CP_UTF8);
    std::atexit([] {
        if (input_page != 0) ::SetConsoleCP(input_page);
        if (output_page != 0) ::SetConsoleOutputCP(output_page);
    });
    for (const DWORD id : {STD_OUTPUT_HANDLE, STD_ERROR_HANDLE}) {
        DWORD mode = 0;
        const HANDLE handle = ::GetStdHandle(id);
        if (::GetConsoleMode(handle, &mode)) ::SetConsoleMode(handle, mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
    }
    for (std::FILE* file : {stdin, stdout, stderr}) ::_setmode(::_fileno(file), _O_BINARY);
}

QuietTerminal::QuietTerminal(Keeps) {}
QuietTerminal::~QuietTerminal() {}
void restore_terminal() {}

} // namespace tq
