#include "tools/tq-run/console.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/terminal.h"
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tq {

constexpr size_t max_input_bytes = 64u << 20;

void write_output(std::string_view text) {
    errno = 0;
    if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
    if (errno == EPIPE || errno == EINVAL) throw OutputClosed(); // EINVAL is what Windows says of a closed pipe
    fail("cannot write to standard output: {}", std::strerror(errno));
}

void write_error(std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
}

static void check_read() {
    if (std::ferror(stdin) && !interrupted()) fail("cannot read standard input: {}", std::strerror(errno));
}

std::string read_input() {
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

Console::Console(ColorMode color, bool simple)
    : input_is_terminal_(is_terminal(Stream::input)), output_is_terminal_(is_terminal(Stream::output)),
      live_(is_terminal(Stream::error) && !simple) {
    const char* no_color = std::getenv("NO_COLOR"); // https://no-color.org
    const char* term = std::getenv("TERM");
    const bool refused = (no_color && *no_color) || (term && std::string_view(term) == "dumb");
    color_ = color == ColorMode::on || (color == ColorMode::automatic && live_ && !refused);
}

std::string Console::dim(std::string_view text) const {
    return color_ && !text.empty() ? fmt::format("\x1b[2m{}\x1b[0m", text) : std::string(text);
}

std::string Console::bold(std::string_view text) const {
    return color_ && !text.empty() ? fmt::format("\x1b[1m{}\x1b[0m", text) : std::string(text);
}

void Console::status(std::string_view text) {
    if (!live_) return;
    write_error(fmt::format("\r\x1b[K{}", text));
    status_shown_ = true;
}

void Console::clear_status() {
    if (status_shown_) write_error("\r\x1b[K");
    status_shown_ = false;
}

} // namespace tq
