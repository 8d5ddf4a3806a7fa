// Calls without tags: Llama's form, and that of models which forget the tags. The object is held back until it is a call, or
// cannot be one any more.
#include "model/text/fence.h"
#include "model/text/match.h"
#include "model/text/tool_calls.h"
#include <algorithm>
#include <utility>

namespace tq {
namespace {

using UntaggedKind = AnswerPart::Kind;

// The beginning of an object that may be a call: "type" and "name", whose values are texts, then its arguments. `found`: whether
// all of that is there.
struct UntaggedHead {
    Match match;
    std::string_view name = {};
    size_t arguments = 0;    // where their value begins
    bool name_begun = false; // with the quote of its value

    // Whether the text, which was cut off, is the beginning of a call. `native`: the model writes its calls without tags.
    bool is_cut_call(std::string_view text, bool native) const {
        const std::string_view value = match.found == Match::yes ? text.substr(arguments) : "";
        const bool may_be = value.empty() || value[0] == '{' || value[0] == '"';
        return match.found != Match::no && may_be && (name_begun || (native && text.find('{') != text.npos));
    }
};

UntaggedHead read_untagged_head(std::string_view text, const ToolTypes& types) {
    UntaggedHead head{match_words(text, 0, {"{"})};
    while (head.match.found == Match::yes) {
        const size_t at = head.match.end;
        bool is_name = false, is_arguments = false;
        Match key{Match::no};
        for (const std::string_view word : {"\"type\"", "\"name\"", "\"arguments\"", "\"parameters\""}) {
            const Match match = match_words(text, at, {word, ":"});
            if (match.found == Match::no || key.found == Match::yes) continue;
            key = match;
            is_name = word == "\"name\"", is_arguments = !is_name && word != "\"type\"";
        }
        head.match = key;
        if (key.found != Match::yes) return head;
        head.arguments = spaces(text, key.end);
        if (is_arguments) return head;
        const std::string_view value = text.substr(std::min(head.arguments + 1, text.size()));
        head.match = match_string(text, head.arguments);
        head.name_begun |= is_name && head.arguments < text.size();
        if (is_name && head.match.found == Match::more && !types.has_beginning(value)) head.match.found = Match::no;
        if (head.match.found != Match::yes) return head;
        if (is_name) head.name = value.substr(0, head.match.end - head.arguments - 2);
        if (is_name && !types.has(std::string(head.name))) return {Match{Match::no}};
        head.match = match_words(text, head.match.end, {","});
    }
    return head;
}

} // namespace

// Returns whether nothing of the rest is content yet; where a call may begin, the state changes.
bool AnswerParser::begins_untagged() {
    const bool behind_call = calls_ > 0; // calls are divided by semicolons
    const size_t begin = rest().find_first_not_of(behind_call ? " \t\r\n;" : " \t\r\n");
    if (begin == std::string_view::npos) return true;
    may_be_untagged_ = false;
    if (rest()[begin] != '{' && (rest()[begin] != '`' || behind_call)) return false;
    take(behind_call ? begin : 0);
    before_call_ = behind_call ? pending_.substr(pos_ - begin, begin) : "";
    state_ = State::untagged;
    depth_ = 0, in_string_ = escaped_ = false;
    return true;
}

bool AnswerParser::step_untagged() {
    const std::string_view text = rest();
    const size_t open = text.find('{');
    bool can_be = begins_fence(text) || read_untagged_head(without_fence(text), types_).match.found != Match::no;
    for (; can_be && scanned_ < text.size(); ++scanned_) {
        const char c = text[scanned_];
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
        const bool ends = can_be && depth_ == 0 && scanned_ > open && c == '}';
        if (!ends || untagged_ != UntaggedCalls::several || text.find('`') < open) continue;
        const std::string object(text.substr(0, scanned_ + 1));
        can_be = read_whole_json(object, true);
        if (can_be) return take(object.size()), add_untagged(object), true;
    }
    if (can_be) return false;
    scanned_ = 0;
    add(UntaggedKind::content, std::exchange(before_call_, {}));
    state_ = State::content;
    return true;
}

// The end of a call that was added; another may follow.
void AnswerParser::add_untagged(std::string_view text) {
    call_text_ = text.substr(spaces(text));
    before_call_.clear();
    end_call(true);
    may_be_untagged_ = untagged_ == UntaggedCalls::several;
}

// The answer is at its end, and all of it, or all behind another call, may be a call.
void AnswerParser::finish_untagged(const std::string& answer, bool cut) {
    const std::string_view text = without_fence(answer);
    if (read_whole_json(text, true)) return add_untagged(answer);
    const UntaggedHead head = read_untagged_head(text, types_);
    if (!cut || !head.is_cut_call(text, untagged_ == UntaggedCalls::several))
        return add(UntaggedKind::content, std::exchange(before_call_, {}) + answer);
    const bool has_arguments =
        head.match.found == Match::yes && !head.name.empty() && text.substr(head.arguments).starts_with('{');
    if (!has_arguments) return; // there is nothing that a client could use
    begin_call(std::string(head.name));
    add(UntaggedKind::arguments, std::string(text.substr(head.arguments)));
    call_text_ = answer;
    end_call(false, true);
}

} // namespace tq
