// Standard streams. Answers go to standard output and are flushed at once, because programs read them as they come; everything
// else goes to standard error, by a lock, since a server's threads write there. Lines are broken at a terminal's width only.
// A status line is overwritten by the next. Without a terminal it would fill a log, so it is written after 10 s, then after twice
// as long each time, up to a minute (is_time_for_line). harmless() removes control characters from what models and files say,
// which could otherwise move the cursor or change the terminal.
#include "tools/tq-run/cli/console.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/terminal.h"
#include "tools/tq-run/cli/columns.h"
#include "tools/tq-run/cli/word_wrap.h"
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fmt/format.h>
#include <mutex>
#include <utility>

namespace tq {

constexpr size_t max_input_bytes = 64u << 20;
constexpr uint32_t usual_columns = 80; // of a terminal that does not report its width

void write_output(std::string_view text) {
    errno = 0;
    if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
    if (errno == EPIPE || errno == EINVAL) throw OutputClosed(); // EINVAL is Windows' error for a closed pipe
    fail("cannot write to standard output: {}", std::strerror(errno));
}

void write_text(std::string_view text) {
    WordWrap wrap(WordWrap::Of::messages);
    const std::string shown = wrap.push(text, text_columns());
    write_output(shown + wrap.flush());
}

uint32_t text_columns() { return terminal_columns(Stream::output); }

// All callers share one wrap: a line may be written in parts, and where it breaks depends on what is in it already. It starts
// anew after a line end.
void write_error(std::string_view text) {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    static WordWrap wrap(WordWrap::Of::messages); // a line may come in parts
    std::string shown = wrap.push(text, terminal_columns(Stream::error));
    shown += wrap.flush();
    if (text.ends_with('\n')) wrap = WordWrap(WordWrap::Of::messages);
    std::fwrite(shown.data(), 1, shown.size(), stderr);
    std::fflush(stderr);
}

static void check_read() {
    if (std::ferror(stdin) && !interrupted()) fail("cannot read standard input: {}", std::strerror(errno));
}

std::string read_input() {
    const WaitForInput waiting;
    std::string text;
    char block[65536];
    for (size_t bytes; (bytes = std::fread(block, 1, sizeof block, stdin)) > 0;) {
        text.append(block, bytes);
        if (text.size() > max_input_bytes) fail("standard input holds more than {} MiB", max_input_bytes >> 20);
    }
    check_read();
    return text;
}

std::optional<std::string> read_line() {
    const WaitForInput waiting;
    std::string line;
    for (int c; (c = std::getc(stdin)) != '\n';) {
        if (c == EOF) {
            check_read();
            if (line.empty() || interrupted()) return std::nullopt;
            break;
        }
        line.push_back(char(c));
        if (line.size() > max_input_bytes) fail("a line of standard input is longer than {} MiB", max_input_bytes >> 20);
    }
    if (line.ends_with('\r')) line.pop_back();
    return line;
}

// C0 controls but line ends and tabs, DEL, and the C1 controls, which are two bytes in UTF-8 (C2 80 to C2 9F): terminals take
// U+009B for the beginning of an escape sequence, as ESC [. Each becomes U+FFFD. Bytes that are no UTF-8 stay, since a terminal
// shows them as it likes and does not obey them.
std::string harmless(std::string_view text) {
    std::string result;
    for (size_t i = 0; i < text.size(); ++i) {
        const auto c = uint8_t(text[i]), next = uint8_t(i + 1 < text.size() ? text[i + 1] : 0);
        const bool c0 = (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
        const bool c1 = c == 0xc2 && next >= 0x80 && next < 0xa0;
        if (c0 || c1)
            result += "\xef\xbf\xbd";
        else
            result += char(c);
        if (c1) ++i;
    }
    return result;
}

Console::Console(ColorMode color, bool simple, bool verbose)
    : simple_(simple), verbose_(verbose), dumb_(environment_variable("TERM") == "dumb"),
      input_is_terminal_(is_terminal(Stream::input)), output_is_terminal_(is_terminal(Stream::output)),
      live_(is_terminal(Stream::error) && !simple) {
    const bool refused = environment_variable("NO_COLOR") || dumb_; // https://no-color.org
    color_ = color == ColorMode::on || (color == ColorMode::automatic && live_ && !refused);
}

std::string Console::dim(std::string_view text) const {
    return color_ && !text.empty() ? fmt::format("\x1b[2m{}\x1b[0m", text) : std::string(text);
}

std::string Console::bold(std::string_view text) const {
    return color_ && !text.empty() ? fmt::format("\x1b[1m{}\x1b[0m", text) : std::string(text);
}

// The last column stays empty: some terminals move to the next line once it is written.
static uint32_t status_columns() {
    const uint32_t columns = terminal_columns(Stream::error);
    return columns == 0 ? usual_columns - 1 : columns - 1;
}

// Other work begins some seconds after a status was cleared: until then it is the next step of the same.
bool Console::is_time_for_line() {
    constexpr std::chrono::seconds first{10}, last{60}, pause{5};
    const auto now = Clock::now();
    if (const auto cleared = std::exchange(cleared_, std::nullopt); cleared && now - *cleared > pause)
        last_line_ = now, patience_ = first;
    if (now - last_line_ < patience_) return false;
    last_line_ = now;
    patience_ = std::min(2 * patience_, last);
    return true;
}

void Console::status(std::string_view text) {
    if (!live_ && !simple_ && is_time_for_line()) write_error(fmt::format("{}\n", text));
    if (!live_) return;
    write_error(fmt::format("\r\x1b[K{}", cut_end(text, status_columns())));
    status_shown_ = true;
}

void Console::status(std::string_view label, std::string_view state) {
    if (!live_) return status(fmt::format("{}: {}", label, state));
    const size_t all = status_columns(), rest = display_columns(state) + 2;
    status(fmt::format("{}: {}", cut_middle(label, std::max(all - std::min(all, rest), all / 3)), state));
}

void Console::clear_status() {
    if (status_shown_) write_error("\r\x1b[K");
    status_shown_ = false;
    if (!cleared_) cleared_ = Clock::now();
}

void Console::say(std::string_view what) {
    clear_status();
    write_error(fmt::format("tq-run: {}\n", what));
}

} // namespace tq
