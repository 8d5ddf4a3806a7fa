// Bytes of a terminal become keys. libedit's own table of sequences depends on terminfo and does not know bracketed paste, so
// the sequences of common terminals are read here, and libedit gets one code for each key. Anything incomplete waits for more
// bytes: an ESC may be the key or the beginning of a sequence, which patience_ms() decides; a paste ends only with its end
// mark, or after two seconds of silence.
// A paste is text: its line ends do not send it, and its control characters are removed, so that nothing that was copied can
// press keys. Unknown sequences are dropped whole.
#include "tools/tq-run/talk/libedit/keys.h"
#include "model/text/tokenizer.h"
#include "model/text/unicode.h"
#include <algorithm>
#include <array>
#include <utility>

namespace tq {
namespace {

constexpr std::string_view paste_begins = "\x1b[200~", paste_ends = "\x1b[201~";

// The bytes after ESC [ or ESC O, from terminals in common use.
constexpr std::array<std::pair<std::string_view, Key>, 22> sequences{{
    {"A", key_up},           {"B", key_down},
    {"C", key_right},        {"D", key_left},
    {"H", key_home},         {"F", key_end},
    {"1~", key_home},        {"4~", key_end},
    {"7~", key_home},        {"8~", key_end},
    {"3~", key_delete},      {"1;5C", key_word_right},
    {"1;5D", key_word_left}, {"1;3C", key_word_right},
    {"1;3D", key_word_left}, {"c", key_word_right},
    {"d", key_word_left},    {"1;2A", key_up},
    {"1;2B", key_down},      {"1;2C", key_right},
    {"1;2D", key_left},      {"27;3;13~", key_line_feed},
}};

// The text of a paste: line ends as line feeds, and no other control characters but tabs.
std::string clean(std::string_view bytes) {
    Utf8Stream stream;
    const std::string text = stream.push(bytes) + stream.flush();
    std::string result;
    for (size_t at = 0; at < text.size();) {
        const Utf8Step step = step_utf8(text, at);
        const char32_t c = step.code_point;
        const bool follows_cr = at > 0 && text[at - 1] == '\r';
        if (c == '\r' || (c == '\n' && !follows_cr))
            result += '\n';
        else if (c == '\t' || (c >= 0x20 && (c < 0x7f || c >= 0xa0)))
            result.append(text, at, step.length);
        at += step.length;
    }
    if (result.ends_with('\n')) result.pop_back(); // only Enter sends it
    return result;
}

} // namespace

bool KeyReader::take_paste() {
    const size_t end = bytes_.find(paste_ends, std::max(searched_, paste_begins.size()));
    if (end == std::string::npos) {
        searched_ = bytes_.size() - std::min(bytes_.size(), paste_ends.size() - 1);
        return false;
    }
    searched_ = 0;
    pasted_ = clean(std::string_view(bytes_).substr(paste_begins.size(), end - paste_begins.size()));
    bytes_.erase(0, end + paste_ends.size());
    return true;
}

// Unknown sequences are no key, and above all not the characters in them.
std::optional<wchar_t> KeyReader::take_sequence() {
    const size_t end = bytes_.find_first_not_of("0123456789;:<=>? !\"#$%&'()*+,-./", 2);
    if (end == std::string::npos) return std::nullopt;
    if (std::string_view(bytes_).starts_with(paste_begins))
        return take_paste() ? std::optional<wchar_t>(key_paste) : std::nullopt;
    const std::string body = bytes_.substr(2, end - 1);
    bytes_.erase(0, end + 1);
    for (const auto& [known, key] : sequences)
        if (body == known) return key;
    return take();
}

// Returns nothing if the bytes may be the beginning of more: ESC alone is a key only if nothing follows it in time
// (patience_ms(), give_up()). A paste may take longer, as terminals send it in pieces.
std::optional<wchar_t> KeyReader::take() {
    if (bytes_.empty()) return std::nullopt;
    if (bytes_[0] == '\x1b') {
        if (bytes_.size() == 1) return std::nullopt;
        if (bytes_[1] == '[' || bytes_[1] == 'O') return take_sequence();
        const bool enter = bytes_[1] == '\r' || bytes_[1] == '\n';
        bytes_.erase(0, enter ? 2 : 1);
        return enter ? wchar_t(key_line_feed) : L'\x1b';
    }
    const Utf8Step step = step_utf8(bytes_, 0);
    if (step.kind == Utf8Step::Kind::incomplete) return std::nullopt;
    bytes_.erase(0, step.length);
    const bool typed = step.kind == Utf8Step::Kind::character && (step.code_point < 0x80 || step.code_point >= 0xa0);
    return typed ? wchar_t(step.code_point) : L'\xfffd';
}

int KeyReader::patience_ms() const { return std::string_view(bytes_).starts_with(paste_begins) ? 2000 : 50; }

void KeyReader::give_up() {
    if (std::string_view(bytes_).starts_with(paste_begins))
        bytes_ += paste_ends;
    else
        bytes_.clear();
}

} // namespace tq
