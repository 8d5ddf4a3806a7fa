// A line editor on libedit, with four additions: keys from KeyReader; text of several lines (Alt-Enter, pastes, a \ at the end);
// Ctrl-C, which takes the line back and is a key and no signal while a line is read; completion of commands and files. It writes
// to a stream of its own on standard error, because stderr has no buffer.
// A change of the terminal's size: libedit believes that nothing is shown any more. show_again() computes how many rows the text
// takes at the new width, erases them from the prompt on, and lets libedit draw anew.
// libedit counts no columns between two \1 in the prompt, so each colour is put between two of them (read).
#include "tools/tq-run/talk/line_editor.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/terminal.h"
#include "model/text/unicode.h"
#include "tools/tq-run/cli/columns.h"
#include "tools/tq-run/cli/console.h"
#include "tools/tq-run/talk/libedit/keys.h"
#include <algorithm>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <cwchar>
#include <histedit.h>
#include <langinfo.h>
#include <poll.h>
#include <unistd.h>

namespace tq {
namespace {

constexpr int history_entries = 1000;
constexpr size_t prompt_columns = 2; // a sign and a space

volatile std::sig_atomic_t resized = 0;
void note_resize(int) { resized = 1; }

std::wstring wide(std::string_view text) {
    std::wstring result;
    for (size_t at = 0; at < text.size();) {
        const Utf8Step step = step_utf8(text, at);
        result += step.kind == Utf8Step::Kind::character ? wchar_t(step.code_point) : L'\xfffd';
        at += step.length;
    }
    return result;
}

std::string utf8(std::wstring_view text) {
    std::string result;
    for (const wchar_t c : text) append_utf8(result, char32_t(c));
    return result;
}

// Selects UTF-8: libedit writes what the locale can show, and a terminal today shows UTF-8 even without a locale.
void want_utf8() {
    for (const char* locale : {"", "C.UTF-8", "en_US.UTF-8", "UTF-8"})
        if (std::setlocale(LC_CTYPE, locale) && std::strcmp(::nl_langinfo(CODESET), "UTF-8") == 0) return;
}

class LibeditEditor : public LineEditor {
  public:
    explicit LibeditEditor(Complete complete);
    ~LibeditEditor() override;

    ReadLine read(const std::string& prompt) override;
    void remember(const std::string& text) override;

  private:
    static LibeditEditor& of(EditLine* el) {
        void* self = nullptr;
        ::el_get(el, EL_CLIENTDATA, &self);
        return *static_cast<LibeditEditor*>(self);
    }
    void bind(wchar_t key, const wchar_t* command);
    void bind(wchar_t key, const wchar_t* name, const wchar_t* help, unsigned char (*function)(EditLine*, wint_t));
    void bind_keys();
    bool fill(std::string& bytes, int timeout_ms);
    void insert(const std::wstring& text) { ::el_winsertstr(el_, text.c_str()); }
    void offer(const std::vector<std::string>& words);
    bool complete();
    void leave_line();
    void show_again();

    std::FILE* screen_; // buffered, unlike stderr
    EditLine* el_ = nullptr;
    HistoryW* history_ = nullptr;
    Complete complete_;
    KeyReader keys_;
    std::wstring prompt_;
    size_t keys_pressed_ = 0; // since the prompt was shown
    bool interrupted_ = false;
    std::string half_typed_; // when Ctrl-C was pressed
};

// libedit reads keys through EL_GETCFN alone, so that KeyReader sees the bytes first. Terminal modes are set for its two states:
// -x is execution, between reads, -d is editing. SIGWINCH is caught here and without SA_RESTART, so that poll() returns and
// fill() draws anew.
LibeditEditor::LibeditEditor(Complete complete) : screen_(::fdopen(::dup(STDERR_FILENO), "w")), complete_(std::move(complete)) {
    if (!screen_) fail("cannot write to the terminal: {}", std::strerror(errno));
    want_utf8();
    el_ = ::el_init("tq-run", stdin, screen_, screen_);
    history_ = ::history_winit();
    if (!el_ || !history_)
        fail("the line editor does not start: TERM={} may be unknown; --simple-io does without it",
             environment_variable("TERM").value_or(""));
    HistEventW event;
    ::history_w(history_, &event, H_SETSIZE, history_entries);
    ::history_w(history_, &event, H_SETUNIQUE, 1);
    ::el_wset(el_, EL_CLIENTDATA, this);
    ::el_wset(el_, EL_EDITOR, L"emacs");
    ::el_wset(el_, EL_HIST, ::history_w, history_);
    ::el_wset(
        el_, EL_PROMPT_ESC, +[](EditLine* el) { return of(el).prompt_.data(); }, L'\1');
    ::el_wset(
        el_, EL_GETCFN, +[](EditLine* el, wchar_t* key) {
            LibeditEditor& self = of(el);
            const auto next = self.keys_.next([&](std::string& bytes, int timeout_ms) { return self.fill(bytes, timeout_ms); });
            *key = next.value_or(0);
            ++self.keys_pressed_;
            return next ? 1 : 0;
        });
    bind_keys();
    // Between two reads the modes are QuietTerminal's; during a read, Ctrl-C is a key.
    ::el_wset(el_, EL_SETTY, L"-x", L"-echo", L"-icanon", L"+noflsh", nullptr);
    ::el_wset(el_, EL_SETTY, L"-d", L"-isig", nullptr);
    struct sigaction action = {};
    action.sa_handler = note_resize; // and no SA_RESTART: the waiting ends
    sigemptyset(&action.sa_mask);
    ::sigaction(SIGWINCH, &action, nullptr);
}

LibeditEditor::~LibeditEditor() {
    std::signal(SIGWINCH, SIG_DFL);
    ::el_end(el_);
    ::history_wend(history_);
    std::fclose(screen_);
}

void LibeditEditor::bind(wchar_t key, const wchar_t* command) {
    const wchar_t name[]{key, 0};
    ::el_wset(el_, EL_BIND, name, command, nullptr);
}

void LibeditEditor::bind(wchar_t key, const wchar_t* name, const wchar_t* help, unsigned char (*function)(EditLine*, wint_t)) {
    ::el_wset(el_, EL_ADDFN, name, help, function);
    bind(key, name);
}

void LibeditEditor::bind_keys() {
    bind(key_up, L"ed-prev-history");
    bind(key_down, L"ed-next-history");
    bind(key_left, L"ed-prev-char");
    bind(key_right, L"ed-next-char");
    bind(key_home, L"ed-move-to-beg");
    bind(key_end, L"ed-move-to-end");
    bind(key_delete, L"ed-delete-next-char");
    bind(key_word_left, L"ed-prev-word");
    bind(key_word_right, L"em-next-word");
    bind(L'\x12', L"em-inc-search-prev");  // Ctrl-R
    bind(L'\x13', L"em-inc-search-next");  // Ctrl-S
    bind(L'\x15', L"vi-kill-line-prev");   // Ctrl-U
    bind(L'\x17', L"ed-delete-prev-word"); // Ctrl-W
    bind(
        key_line_feed, L"tq-line-feed", L"a line end in the text", +[](EditLine* el, wint_t) -> unsigned char {
            of(el).insert(L"\n");
            return CC_REFRESH;
        });
    bind(
        key_paste, L"tq-paste", L"insert what was pasted", +[](EditLine* el, wint_t) -> unsigned char {
            of(el).insert(wide(of(el).keys_.pasted()));
            return CC_REFRESH;
        });
    bind(
        L'\t', L"tq-complete", L"complete a command or a file",
        +[](EditLine* el, wint_t) -> unsigned char { return of(el).complete() ? CC_REDISPLAY : CC_REFRESH; });
    bind(
        key_interrupt, L"tq-interrupt", L"take the line back", +[](EditLine* el, wint_t) -> unsigned char {
            of(el).leave_line();
            return CC_REFRESH;
        });
    bind(
        L'\x1a', L"tq-suspend", L"suspend the program", +[](EditLine*, wint_t) -> unsigned char {
            std::raise(SIGTSTP); // QuietTerminal's handler
            return CC_REDISPLAY;
        });
}

// Reads bytes from the terminal; also Ctrl-C, if another program sent that signal.
bool LibeditEditor::fill(std::string& bytes, int timeout_ms) {
    for (;;) {
        if (std::exchange(resized, 0)) show_again();
        if (interrupted()) {
            clear_interrupt();
            bytes += char(key_interrupt);
            return true;
        }
        pollfd input{STDIN_FILENO, POLLIN, 0};
        const int ready = ::poll(&input, 1, timeout_ms);
        if (ready == 0) return true;
        char block[4096];
        const ssize_t n = ready < 0 ? -1 : ::read(STDIN_FILENO, block, sizeof block);
        if (n > 0) bytes.append(block, size_t(n));
        if (n > 0) return true;
        if (n == 0 || errno != EINTR) return false;
    }
}

// Shows the line again after a change of the terminal's size, which libedit takes for an empty line: what it has shown is erased,
// from the row of the prompt on, where terminals have moved it that break lines anew.
void LibeditEditor::show_again() {
    const LineInfoW* line = ::el_wline(el_);
    const uint32_t width = std::max(terminal_columns(Stream::error), 1u);
    size_t rows = 0, column = prompt_columns;
    for (const wchar_t* at = line->buffer; at < line->cursor; at++) {
        column += *at == L'\n' ? 0 : character_columns(char32_t(*at));
        if (*at != L'\n') continue;
        rows += column / width + 1;
        column = 0;
    }
    rows += column / width;
    std::fputs("\r", screen_);
    if (rows > 0) std::fprintf(screen_, "\x1b[%zuA", rows);
    std::fputs("\x1b[J", screen_);
    std::fflush(screen_);
    ::el_resize(el_);
    ::el_wset(el_, EL_REFRESH);
}

// Ends the line as Enter does, which leaves the cursor below all of it.
void LibeditEditor::leave_line() {
    const LineInfoW* line = ::el_wline(el_);
    half_typed_ = utf8({line->buffer, size_t(line->lastchar - line->buffer)});
    ::el_cursor(el_, int(line->lastchar - line->cursor));
    insert(L"^C");
    ::el_wpush(el_, L"\n");
    interrupted_ = true;
}

// Words go side by side as far as the terminal is wide. They may be names of files, so control characters are removed.
void LibeditEditor::offer(const std::vector<std::string>& words) {
    const size_t width = terminal_columns(Stream::error);
    size_t column = 0;
    std::fputs("\r\n", screen_);
    for (const std::string& word : words) {
        const std::string shown = harmless(word);
        const size_t columns = display_columns(shown);
        const bool fits = column == 0 || width == 0 || column + 2 + columns < width;
        std::fprintf(screen_, "%s%s", column == 0 ? "" : fits ? "  " : "\r\n", shown.c_str());
        column = fits && column > 0 ? column + 2 + columns : columns;
    }
    std::fputs("\r\n", screen_);
}

// Adds the prefix that all completions share; true when there was nothing to add, and they were listed.
bool LibeditEditor::complete() {
    const LineInfoW* line = ::el_wline(el_);
    const std::string before = utf8({line->buffer, size_t(line->cursor - line->buffer)});
    const auto words = complete_(before);
    if (words.empty()) return false;
    std::string_view common = words[0];
    for (const std::string& word : words)
        common = common.substr(0, size_t(std::ranges::mismatch(common, word).in1 - common.begin()));
    while (!common.empty() && find_invalid_utf8(common)) common.remove_suffix(1); // not in the middle of a character
    const size_t last = before.find_last_of(" \n") + 1;
    std::wstring more = wide(common.substr(std::min(common.size(), before.size() - last)));
    if (words.size() == 1 && !common.ends_with('/')) more += L' ';
    if (!more.empty()) insert(more);
    if (!more.empty()) return false;
    offer(words);
    return true;
}

// An interrupt is told apart from an empty line by `interrupted_`, and keys_pressed_ says whether anything was typed before it:
// Ctrl-C at an empty prompt, twice, leaves the chat.
ReadLine LibeditEditor::read(const std::string& prompt) {
    prompt_.clear();
    for (const wchar_t c : wide(prompt)) { // libedit counts no columns between two \1
        const bool colour_ends = c == L'm' && prompt_.find_last_of(L'\x1b') != std::wstring::npos;
        prompt_ += c == L'\x1b' ? std::wstring(L"\1\x1b") : colour_ends ? std::wstring(L"m\1") : std::wstring(1, c);
    }
    interrupted_ = false;
    keys_pressed_ = 0;
    int count = 0;
    const wchar_t* line = ::el_wgets(el_, &count);
    std::fflush(screen_);
    if (interrupted_) return {ReadLine::Kind::interrupted, std::move(half_typed_), keys_pressed_ <= 1};
    if (!line || count <= 0) {
        std::fputs("\r\n", screen_);
        std::fflush(screen_);
        return {ReadLine::Kind::end, {}};
    }
    std::string text = utf8({line, size_t(count)});
    if (text.ends_with('\n')) text.pop_back();
    return {ReadLine::Kind::line, std::move(text)};
}

void LibeditEditor::remember(const std::string& text) {
    HistEventW event;
    ::history_w(history_, &event, H_ENTER, wide(text).c_str());
}

} // namespace

std::unique_ptr<LineEditor> LineEditor::make(Complete complete) { return std::make_unique<LibeditEditor>(std::move(complete)); }

} // namespace tq
