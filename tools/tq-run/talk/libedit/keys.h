// Converts the bytes of a terminal to characters and keys: parses escape sequences and bracketed pastes.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace tq {

// Keys without a character, as C1 controls, which nobody types.
enum Key : wchar_t {
    key_interrupt = 0x03,
    key_paste = 0x80, // KeyReader::pasted()
    key_up,
    key_down,
    key_left,
    key_right,
    key_home,
    key_end,
    key_delete,
    key_word_left,
    key_word_right,
    key_line_feed, // Alt-Enter: a line end within the text
};

class KeyReader {
  public:
    // `fill` appends new bytes, after waiting for them that many milliseconds (-1: for ever); false at the end of input.
    template <class Fill> std::optional<wchar_t> next(Fill fill) {
        for (;;) {
            if (const auto key = take()) return key;
            const size_t before = bytes_.size();
            if (!fill(bytes_, bytes_.empty() ? -1 : patience_ms())) return std::nullopt;
            if (bytes_.size() == before) give_up();
        }
    }

    const std::string& pasted() const { return pasted_; } // valid UTF-8, line feeds and tabs the only controls

  private:
    std::optional<wchar_t> take(); // nothing if the bytes are an incomplete sequence
    std::optional<wchar_t> take_sequence();
    bool take_paste();
    int patience_ms() const;
    void give_up(); // no more bytes came: the sequence is complete as it stands

    std::string bytes_;
    size_t searched_ = 0; // in a paste: no end sequence begins before
    std::string pasted_;
};

} // namespace tq
