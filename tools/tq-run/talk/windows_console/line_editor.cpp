// Windows' console edits lines itself, and remembers the lines of this run. It is read as UTF-16, for its reads in UTF-8 lose
// characters.
#include "tools/tq-run/talk/line_editor.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/wide_text.h"
#include "tools/tq-run/cli/console.h"
#include <span>
#include <windows.h>

namespace tq {
namespace {

struct ConsoleRead {
    bool ok = false;
    DWORD units = 0, error = 0;
};

// An event that nobody typed (another program's) does not end a read by itself.
ConsoleRead read_console(std::span<wchar_t> block) {
    const WaitForInput waiting;
    ConsoleRead read;
    read.ok = ::ReadConsoleW(::GetStdHandle(STD_INPUT_HANDLE), block.data(), DWORD(block.size()), &read.units, nullptr);
    read.error = ::GetLastError();
    return read;
}

class ConsoleEditor : public LineEditor {
  public:
    ReadLine read(const std::string& prompt) override {
        write_error(prompt);
        std::wstring line;
        do {
            wchar_t block[4096];
            const ConsoleRead got = read_console(block);
            if (interrupted() || (got.units == 0 && got.error == ERROR_OPERATION_ABORTED)) {
                for (int i = 0; i < 100 && !interrupted(); i++) ::Sleep(10); // the event has a thread of its own
                clear_interrupt();
                write_error("\n");
                return {ReadLine::Kind::interrupted, {}, true};
            }
            if (!got.ok) fail("cannot read the console: error {}", got.error);
            if (got.units == 0) return {ReadLine::Kind::end, {}};
            line.append(block, got.units);
        } while (!line.ends_with(L'\n'));
        if (line.starts_with(L'\x1a')) return {ReadLine::Kind::end, {}}; // Ctrl-Z
        while (line.ends_with(L'\n') || line.ends_with(L'\r')) line.pop_back();
        return {ReadLine::Kind::line, narrow_text(line)};
    }

    void remember(const std::string&) override {}
};

} // namespace

std::unique_ptr<LineEditor> LineEditor::make(Complete) { return std::make_unique<ConsoleEditor>(); }

} // namespace tq
