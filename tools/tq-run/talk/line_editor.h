// A line that its user edits at the terminal before it is read. libedit/: with that library; no_libedit/: there is none.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tq {

struct ReadLine {
    enum class Kind { line, interrupted, end } kind;
    std::string text;     // UTF-8; may have several lines. What was typed before Ctrl-C, too
    bool at_once = false; // Ctrl-C was the first key
};

class LineEditor {
  public:
    // What the last word of the text before the cursor can become.
    using Complete = std::function<std::vector<std::string>(std::string_view before)>;

    // The terminal is in the modes of QuietTerminal::Keeps::keys as long as an editor lives, by the caller. Nothing where no
    // editor was built in.
    static std::unique_ptr<LineEditor> make(Complete complete);
    virtual ~LineEditor() = default;

    virtual ReadLine read(const std::string& prompt) = 0;
    virtual void remember(const std::string& text) = 0; // for Up, Down and Ctrl-R
};

} // namespace tq
