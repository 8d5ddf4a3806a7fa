// How calls end: whole, broken, or cut off.
// A call that the model has written wrongly is told as well as it can be read: its name, and as arguments the text that stands
// where they should be. A client then answers it with an error, which the model understands; the markup as text would help
// nobody. A name or arguments that cannot be told apart from the rest make no call: then the text between the tags is content.
#include "base/error.h"
#include "base/json.h"
#include "model/text/python_json.h"
#include "model/text/tool_calls.h"

namespace tq {
namespace {

using EndKind = AnswerPart::Kind;

bool is_json_object(std::string_view text) {
    try {
        return build_json<nlohmann::ordered_json>(text, "the call", {.max_depth = 128}).is_object();
    } catch (const Error&) {
        return false;
    }
}

std::string_view trimmed(std::string_view text) {
    text.remove_prefix(spaces(text));
    while (!text.empty() && is_json_space(text.back())) text.remove_suffix(1);
    return text;
}

// The length of a tag at the beginning of a text; 0: there is none.
size_t tag_length(std::string_view text) {
    for (const std::string_view tag :
         {call_tag, end_call_tag, tools_tag, end_tools_tag, std::string_view("</function>"), std::string_view("</parameter>")})
        if (text.starts_with(tag)) return tag.size();
    for (const std::string_view tag : {std::string_view("<function="), std::string_view("<parameter=")})
        if (text.starts_with(tag)) return std::max(text.substr(0, max_tag_name_bytes).find('>') + 1, tag.size());
    return 0;
}

std::string without_tags(std::string_view text) {
    std::string out;
    while (!text.empty()) {
        const size_t tag = tag_length(text);
        if (tag == 0) out += text[0];
        text.remove_prefix(std::max<size_t>(tag, 1));
    }
    return out;
}

// Returns the end of a value that begins at `at` within an object, by its brackets and quotes; it may be no JSON.
size_t value_end(std::string_view text, size_t at) {
    size_t depth = 0;
    bool in_string = false;
    for (; at < text.size(); ++at) {
        const char c = text[at];
        if (in_string && c == '\\')
            ++at;
        else if (c == '"')
            in_string = !in_string;
        else if (in_string)
            continue;
        else if (depth == 0 && (c == ',' || c == '}' || c == ']'))
            break;
        else if (c == '{' || c == '[')
            ++depth;
        else if (c == '}' || c == ']')
            --depth;
    }
    return std::min(at, text.size());
}

// A text that is the JSON of a text becomes that text.
std::string unquoted(std::string_view value) {
    const auto text = nlohmann::json::parse(value, nullptr, false);
    return text.is_string() ? text.get<std::string>() : std::string(value);
}

} // namespace

std::string_view AnswerParser::call_body() const {
    std::string_view body = trimmed(call_text_);
    while (body.starts_with(call_tag) || body.starts_with(tools_tag))
        body = trimmed(body.substr(body.starts_with(call_tag) ? call_tag.size() : tools_tag.size()));
    for (const std::string_view tag : {end_call_tag, end_tools_tag})
        if (body.ends_with(tag)) body.remove_suffix(tag.size());
    return trimmed(body);
}

// Several objects may stand between the same tags.
bool AnswerParser::step_json_end() {
    const Match end = match_words(rest(), 0, {"}"});
    Match next = end.found == Match::yes ? match_words(rest(), end.end, {"{"}) : end;
    if (end.found == Match::yes && next.found == Match::no) next = match_words(rest(), end.end, {",", "{"});
    if (next.found == Match::no) return step_until_close();
    if (next.found == Match::more) return false;
    const size_t between = next.end - 1 - end.end;
    take(end.end);
    end_call(is_json_object(call_body()) && is_json_object(arguments_));
    take(between);
    before_call_.clear();
    in_call_ = true;
    state_ = State::call;
    return true;
}

// A call whose text is complete, or at the answer's end.
void AnswerParser::finish_call(bool at_end) {
    if (state_ == State::json_end) return end_call(is_json_object(call_body()) && is_json_object(arguments_));
    if (state_ == State::json_whole && read_whole_json(call_body())) return end_call(true);
    if (!name_.empty()) return end_call(false);
    end_without_name(at_end);
}

// If tools were offered, tags are never content. A text that only began like a call is then dropped, as if it had been cut off.
void AnswerParser::end_without_name(bool at_end) {
    const std::string body(call_body());
    if (auto broken = types_.empty() ? std::nullopt : read_broken_call(body)) {
        begin_call(std::move(broken->name));
        add(EndKind::arguments, std::move(broken->arguments));
        return end_call(false);
    }
    const std::string text = types_.empty() ? call_text_
                             : at_end && (body.starts_with('{') || body.starts_with('<'))
                                 ? ""
                                 : std::string(trimmed(without_tags(body)));
    if (!text.empty()) add(EndKind::content, before_call_ + text);
    call_text_.clear();
    in_call_ = fence_around_ = false;
    state_ = State::content;
}

// A call whose members are in another order or within "function", or whose arguments are a string that holds the JSON.
std::optional<AnswerParser::WholeCall> AnswerParser::read_whole_call(std::string_view text, bool untagged) const {
    nlohmann::ordered_json call;
    try {
        call = build_json<nlohmann::ordered_json>(text, "the call", {.max_depth = 128});
    } catch (const Error&) {
        return std::nullopt;
    }
    if (call.is_object() && !call.contains("name") && call.contains("function") && call["function"].is_object())
        call = nlohmann::ordered_json(std::move(call["function"]));
    if (!call.is_object() || !call.contains("name") || !call["name"].is_string() || call["name"] == "") return std::nullopt;
    if (untagged && !types_.has(call["name"].get<std::string>())) return std::nullopt;
    const auto given = call.find(call.contains("arguments") ? "arguments" : "parameters");
    if (untagged && given == call.end()) return std::nullopt;
    std::string arguments = given == call.end() || given->is_null() ? "{}"
                            : given->is_string()                    ? given->get<std::string>()
                                                                    : python_json(*given);
    if (!is_json_object(arguments)) return std::nullopt;
    return WholeCall{call["name"].get<std::string>(), std::move(arguments)};
}

// Reads the members of an object that is no JSON, or whose arguments are none: each value is what stands before the next comma
// or bracket of its level.
std::optional<AnswerParser::WholeCall> AnswerParser::read_broken_call(std::string_view text) {
    WholeCall call{{}, {}, false};
    bool has_arguments = false;
    for (Match next = match_words(text, 0, {"{"}); next.found == Match::yes; next = match_words(text, next.end, {","})) {
        const size_t begin = spaces(text, next.end);
        const Match key = match_string(text, begin);
        const Match colon = key.found == Match::yes ? match_words(text, key.end, {":"}) : key;
        if (colon.found != Match::yes) break;
        const size_t from = spaces(text, colon.end);
        next.end = value_end(text, from);
        const std::string name = unquoted(text.substr(begin, key.end - begin)),
                          value(trimmed(text.substr(from, next.end - from)));
        if (name == "name" && value.starts_with('"')) call.name = unquoted(value);
        if ((name == "arguments" || name == "parameters") && !value.empty())
            call.arguments = unquoted(value), has_arguments = true;
    }
    return call.name.empty() || !has_arguments ? std::nullopt : std::optional(std::move(call));
}

bool AnswerParser::read_whole_json(std::string_view text) {
    std::optional<WholeCall> call = read_whole_call(text, false);
    if (!call) return false;
    begin_call(std::move(call->name));
    add(EndKind::arguments, std::move(call->arguments));
    return true;
}

// The answer ends in the middle of something. If the limit of tokens cut it, a call whose name is known is told with the
// arguments that there are, and one whose name is not known is dropped. If the model ended it, no more was to come: an incomplete
// call is a call that is not valid.
std::vector<AnswerPart> AnswerParser::finish(bool cut) {
    const State last = state_;
    std::string tail(rest());
    const size_t call = last == State::reasoning ? find_call_in_thinking() : tail.npos;
    take(tail.size());
    if (cut && call != tail.npos && tail.compare(call, call_tag.size(), call_tag) == 0) tail.erase(call);
    if (last == State::untagged) return finish_untagged(tail, cut), std::exchange(parts_, {});
    if (!in_call_) {
        add(last == State::reasoning ? EndKind::reasoning : EndKind::content,
            last == State::reasoning && tail.find_first_not_of('\n') == tail.npos ? "" : tail);
        return std::exchange(parts_, {});
    }
    if (last == State::call_close && tail.find_first_not_of(" \t\r\n") == tail.npos)
        end_call(true); // only the tag that ends the call is missing
    else if (cut && !name_.empty())
        end_call(false, true);
    else if (cut && !read_whole_json(call_body()))
        in_call_ = false; // its name is not known: there is nothing that a client could use
    else if (cut)
        end_call(true);
    else {
        if (last == State::call && !tail.empty() && tail[spaces(tail)] == '{') state_ = State::json_whole;
        finish_call(true);
    }
    return std::exchange(parts_, {});
}

} // namespace tq
