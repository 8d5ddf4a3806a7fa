// Windows' console edits lines itself, and remembers those of this run. It is read as UTF-16, for its reads in UTF-8 lose
// characters.
#include "tools/tq-run/talk/line_editor.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/wide_text.h"
#include "tools/tq-run/console.h"
#include <windows.h>

namespace tq {
namespace {

class ConsoleEditor : public LineEditor {
  public:
    ReadLine read(const std::string& prompt) override {
        write_error(prompt);
        std::wstring line;
        do {
            wchar_t block[4096];
            DWORD units = 0;
            const bool ok = ::ReadConsoleW(::GetStdHandle(STD_INPUT_HANDLE), block, DWORD(std::size(block)), &units, nullptr);
            if (interrupted() || (units == 0 && ::GetLastError() == ERROR_OPERATION_ABORTED)) {
                clear_interrupt();
                write_error("\n");
                return {ReadLine::Kind::interrupted, {}, true};
            }
            if (!ok) fail("cannot read the console: error {}", ::GetLastError());
            if (units == 0) return {ReadLine::Kind::end, {}};
            line.append(block, units);
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
