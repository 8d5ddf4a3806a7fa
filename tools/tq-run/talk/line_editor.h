// A line editor at the terminal. libedit/: with that library; windows_console/: Windows' own; no_libedit/: none.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tq {

struct ReadLine {
    enum class Kind { line, interrupted, end } kind;
    std::string text;     // UTF-8; may have several lines. Includes the text typed before Ctrl-C
    bool at_once = false; // Ctrl-C was the first key
};

class LineEditor {
  public:
    // The possible completions of the last word of the text before the cursor.
    using Complete = std::function<std::vector<std::string>(std::string_view before)>;

    // The caller keeps the terminal in the modes of QuietTerminal::Keeps::keys as long as an editor exists. Nothing if no
    // editor was built in.
    static std::unique_ptr<LineEditor> make(Complete complete);
    virtual ~LineEditor() = default;

    virtual ReadLine read(const std::string& prompt) = 0;
    virtual void remember(const std::string& text) = 0; // for Up, Down and Ctrl-R
};

} // namespace tq
