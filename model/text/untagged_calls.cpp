// Calls without tags: Llama's form, and that of models which forget the tags. The object is held back until it is a call, or
// cannot be one any more.
// An object is a call only if it names a tool that was offered. Until its arguments, its keys must be type, id, name, arguments,
// parameters or function, whose value is the call, so JSON that is the answer itself is known at its first key, and streams from
// there on. A list of calls is several.
#include "model/text/fence.h"
#include "model/text/tool_calls.h"
#include <algorithm>
#include <utility>

namespace tq {
namespace {

using UntaggedKind = AnswerPart::Kind;

// The beginning of an object that may be a call, also the first of a list: "type", "id" and "name", whose values are texts, then
// its arguments. `found`: whether all of that is there.
struct UntaggedHead {
    Match match;
    std::string_view name = {};
    size_t arguments = 0;    // offset of their value
    bool name_begun = false; // with the quote of its value

    // Whether the text, which was cut off, is the beginning of a call. `native`: the model writes its calls without tags.
    bool is_cut_call(std::string_view text, bool native) const {
        const std::string_view value = match.found == Match::yes ? text.substr(arguments) : "";
        const bool may_be = value.empty() || value[0] == '{' || value[0] == '"';
        return match.found != Match::no && may_be && (name_begun || (native && text.find('{') != text.npos));
    }
};

UntaggedHead read_untagged_head(std::string_view text, const ToolTypes& types) {
    const Match list = match_words(text, 0, {"["});
    UntaggedHead head{match_words(text, list.found == Match::yes ? list.end : 0, {"{"})};
    bool is_inner = false; // the call is the value of "function"
    while (head.match.found == Match::yes) {
        const size_t at = head.match.end;
        bool is_name = false, is_arguments = false, is_function = false;
        Match key{Match::no};
        for (const std::string_view word :
             {"\"type\"", "\"id\"", "\"name\"", "\"arguments\"", "\"parameters\"", "\"function\""}) {
            const Match match = match_words(text, at, {word, ":"});
            if (match.found == Match::no || key.found == Match::yes || (is_inner && word == "\"function\"")) continue;
            key = match;
            is_name = word == "\"name\"", is_function = word == "\"function\"";
            is_arguments = word == "\"arguments\"" || word == "\"parameters\"";
        }
        head.match = key;
        if (is_function && key.found == Match::yes) {
            head.match = match_words(text, key.end, {"{"});
            is_inner = true;
            continue;
        }
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

// Returns whether nothing of the rest is content yet; if a call may begin, the state changes.
bool AnswerParser::begins_untagged() {
    const bool behind_call = calls_ > 0; // calls are divided by semicolons
    const size_t begin = rest().find_first_not_of(behind_call ? " \t\r\n;" : " \t\r\n");
    if (begin == std::string_view::npos) return true;
    may_be_untagged_ = false;
    const char first = rest()[begin];
    if (first != '{' && ((first != '`' && first != '[') || behind_call)) return false;
    open_untagged(begin, untagged_ == UntaggedCalls::several);
    return true;
}

// Returns the offset in the rest at which a line after another begins that may be a call, or a fence begins or ends; otherwise
// npos.
size_t AnswerParser::find_untagged() const {
    const std::string_view text = rest();
    const size_t fence = text.find(fence_mark);
    for (size_t line = in_fence_ ? fence : text.find('\n'); line < fence; line = text.find('\n', line + 1)) {
        const size_t begin = spaces(text, line);
        if (begin < text.size() && (text[begin] == '{' || text[begin] == '[')) return begin;
    }
    return fence;
}

// Takes the step at a place of find_untagged().
bool AnswerParser::step_mark(size_t before) {
    if (!in_fence_) return open_untagged(before, false), true;
    in_fence_ = false;
    add(UntaggedKind::content, std::string(rest().substr(0, before + fence_mark.size())));
    take(before + fence_mark.size());
    return true;
}

// `before`: bytes that are content only if no call follows. `native`: this is the form of the model's calls.
void AnswerParser::open_untagged(size_t before, bool native) {
    native_ = native;
    before_call_ = rest().substr(0, before);
    take(before);
    state_ = State::untagged;
    depth_ = 0, in_string_ = escaped_ = false;
    objects_.clear();
    list_ = List::none;
}

// Behind a call with tags in a fence. Returns whether it cannot be known yet if that ends.
bool AnswerParser::step_fence_end() {
    const Match end = match_words(rest(), 0, {fence_mark}), next = match_open(rest(), 0);
    if (end.found == Match::yes) take(end.end);
    const bool unknown = end.found == Match::more || next.found == Match::more;
    fence_around_ = unknown || next.found == Match::yes;
    return unknown;
}

// Objects one behind the other, each perhaps in a fence, or in a list; or calls with tags in a fence.
bool AnswerParser::step_untagged() {
    const std::string_view text = rest();
    const Match fence = match_fence(text);
    if (fence.found == Match::more) return false;
    if (const Match tag = match_open(text, fence.end); fence.found == Match::yes && tag.found != Match::no) {
        if (tag.found == Match::more) return false;
        fence_around_ = true;
        before_call_ += text.substr(0, spaces(text, fence.end));
        return open_tagged(spaces(text, fence.end)), true;
    }
    scanned_ = std::max(scanned_, fence.end);
    bool can_be = read_untagged_head(text.substr(fence.end), types_).match.found != Match::no;
    for (; can_be && scanned_ < text.size(); ++scanned_) {
        const char c = text[scanned_];
        if (scan_string(c)) continue;
        if (depth_ == 0 && c == '{')
            depth_ = 1, can_be = list_ != List::ended, objects_.push_back({scanned_});
        else if (depth_ == 0 && c == '[')
            can_be = objects_.empty() && std::exchange(list_, List::begun) == List::none;
        else if (depth_ == 0 && list_ == List::begun && (c == ',' || c == ']'))
            list_ = c == ']' ? List::ended : list_, can_be = !objects_.empty();
        else if (c == '{' || c == '[')
            can_be = depth_++ > 0;
        else if (c == '}' || c == ']')
            can_be = depth_ > 0 && depth_-- > 0;
        else if (depth_ == 0 && c == fence_mark[0] && !objects_.empty()) {
            const Match mark = match_fence(text.substr(scanned_));
            if (mark.found == Match::more) return false;
            can_be = mark.found == Match::yes;
            scanned_ += mark.end - 1;
        } else if (depth_ == 0 && c == '<' && !objects_.empty()) {
            const Match tag = match_end_tag(text, scanned_);
            if (tag.found == Match::more) return false;
            can_be = tag.found == Match::yes;
            scanned_ = can_be ? tag.end - 1 : scanned_;
        } else if (depth_ == 0)
            can_be = is_json_space(c);
        if (!can_be || depth_ != 0 || c != '}') continue;
        objects_.back().end = scanned_ + 1;
        if (!native_ || fence.found == Match::yes || list_ != List::none) continue;
        can_be = add_untagged(text);
        if (!can_be) break;
        take(objects_.back().end);
        may_be_untagged_ = true;
        return true;
    }
    if (can_be) return false;
    in_fence_ = fence.found == Match::yes;
    add(UntaggedKind::content, std::exchange(before_call_, {}) + std::string(text.substr(0, fence.end)));
    take(fence.end);
    state_ = State::content;
    return true;
}

// Adds the calls of a text: its objects that are whole. Returns false if one of them is none. An object that is no JSON is one
// only if the tag that ends a call follows.
bool AnswerParser::add_untagged(std::string_view text) {
    std::vector<WholeCall> calls;
    for (const Object& object : objects_) {
        if (object.end == 0) break;
        const std::string_view whole = text.substr(object.begin, object.end - object.begin);
        auto call = read_whole_call(whole, true);
        if (!call && match_end_tag(text, object.end).found == Match::yes) call = read_broken_call(whole);
        if (!call || !types_.has(call->name)) return false;
        calls.push_back(*std::move(call));
    }
    if (!calls.empty()) before_call_.clear();
    for (size_t i = 0; i < calls.size(); ++i) {
        begin_call(std::move(calls[i].name));
        add(UntaggedKind::arguments, std::move(calls[i].arguments));
        call_text_ = text.substr(objects_[i].begin, objects_[i].end - objects_[i].begin);
        end_call(calls[i].valid);
    }
    return true;
}

// The answer is at its end, and all of it, or all behind what was returned, may be a call. `answer`: the rest.
void AnswerParser::finish_untagged(const std::string& answer, bool cut) {
    const bool is_begun = objects_.empty() || objects_.back().end == 0;
    const size_t whole = is_begun ? match_fence(answer).end : objects_.back().end,
                 from = objects_.empty() || !is_begun ? whole : objects_.back().begin;
    const std::string_view last = std::string_view(answer).substr(from);
    const UntaggedHead head = read_untagged_head(last, types_);
    const bool is_cut = cut && is_begun && head.is_cut_call(last, native_);
    if ((is_begun && !is_cut) || !add_untagged(answer)) {
        const size_t tag = is_begun ? answer.npos : answer.find(end_call_tag, whole);
        const std::string_view text = std::string_view(answer).substr(0, tag);
        return add(UntaggedKind::content, std::exchange(before_call_, {}) + std::string(text));
    }
    const bool has_arguments =
        head.match.found == Match::yes && !head.name.empty() && last.substr(head.arguments).starts_with('{');
    if (!is_cut || !has_arguments) return; // there is nothing that a client could use
    begin_call(std::string(head.name));
    add(UntaggedKind::arguments, std::string(last.substr(head.arguments)));
    call_text_ = objects_.size() > 1 ? std::string(last) : answer;
    end_call(false, true);
}

} // namespace tq
