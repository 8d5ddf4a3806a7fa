// Calls without tags: Llama's form, and that of models which forget the tags.
#include "model/text/fence.h"
#include "model/text/match.h"
#include "model/text/tool_calls.h"
#include <algorithm>
#include <utility>

namespace tq {

// Whether a text that may go on can be a call without tags: its first member is the name of a tool, or the arguments.
bool AnswerParser::may_be_untagged(std::string_view text) {
    if (begins_fence(text)) return true;
    text = without_fence(text);
    if (match_words(text, 0, {"{", "\"arguments\"", ":"}).found != Match::no) return true;
    Match match = match_words(text, 0, {"{", "\"name\"", ":"});
    if (match.found != Match::yes) return match.found == Match::more;
    const size_t name = spaces(text, match.end);
    match = match_string(text, name);
    if (match.found == Match::more) return name >= text.size() || types_.has_beginning(text.substr(name + 1));
    if (match.found == Match::no || !types_.has(std::string(text.substr(name + 1, match.end - name - 2)))) return false;
    return match_words(text, match.end, {",", "\"arguments\"", ":"}).found != Match::no;
}

// Holds back the whole answer, whose last character may say that it is none.
bool AnswerParser::step_untagged() {
    bool can_be = may_be_untagged(rest());
    const size_t open = rest().find('{');
    for (; can_be && scanned_ < rest().size(); ++scanned_) {
        const char c = rest()[scanned_];
        if (escaped_)
            escaped_ = false;
        else if (in_string_ && c == '\\')
            escaped_ = true;
        else if (c == '"' && depth_ > 0)
            in_string_ = !in_string_;
        else if (!in_string_ && (c == '{' || c == '['))
            can_be = depth_++ > 0 || scanned_ == open;
        else if (!in_string_ && (c == '}' || c == ']'))
            can_be = depth_ > 0 && depth_-- > 0;
        else if (depth_ == 0 && scanned_ > open)
            can_be = is_json_space(c) || c == '`';
    }
    if (can_be) return false;
    scanned_ = 0;
    state_ = State::content;
    return true;
}

void AnswerParser::finish_untagged(const std::string& answer, bool cut) {
    const std::string_view text = without_fence(answer);
    const Match match = match_words(text, 0, {"{", "\"name\"", ":"});
    call_text_ = answer;
    if (read_whole_json(text, true)) return end_call(true);
    const size_t name = spaces(text, match.end), open = text.find('{', name);
    const Match name_end = match.found == Match::yes ? match_string(text, name) : Match{Match::no};
    if (!cut || name_end.found != Match::yes || open == text.npos)
        return add(AnswerPart::Kind::content, std::exchange(call_text_, {}));
    begin_call(std::string(text.substr(name + 1, name_end.end - name - 2)));
    add(AnswerPart::Kind::arguments, std::string(text.substr(open)));
    end_call(false, true);
}

// Where a call without tags may begin: at the start, or behind another such call.
bool AnswerParser::step_bare_start() {
    const std::string_view text = rest();
    const size_t begin = text.find_first_not_of(calls_ == 0 ? " \t\r\n" : " \t\r\n;");
    if (begin == text.npos) return false;
    if (text[begin] != '{') return state_ = State::content, true;
    call_text_.clear();
    before_call_ = text.substr(0, begin);
    take(begin);
    in_call_ = true;
    depth_ = 0, in_string_ = escaped_ = false;
    state_ = State::bare;
    return true;
}

// The call is known when it is whole: other JSON is content.
bool AnswerParser::step_bare() {
    const size_t end = json_end();
    take(std::min(end, rest().size()));
    if (end == std::string_view::npos) return false;
    const bool is_call = read_whole_json(call_text_);
    if (is_call) {
        end_call(true);
    } else {
        add(AnswerPart::Kind::content, before_call_ + std::exchange(call_text_, {}));
        in_call_ = false;
    }
    state_ = is_call ? State::bare_start : State::content;
    return true;
}

} // namespace tq
