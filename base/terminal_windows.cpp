#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include "base/terminal.h"
#include <cstdio>
#include <fcntl.h>
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

void prepare_terminal() {
    ::SetConsoleCP(CP_UTF8);
    ::SetConsoleOutputCP(CP_UTF8);
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
