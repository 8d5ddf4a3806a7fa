// The parser is a machine of states; step() reads the next piece that is certain, or returns false if more text could change
// it. It keeps two promises. The parts, joined, do not depend on how the text was cut into pushes: so each state
// holds back what may be the beginning of a tag (begun_tag), white space before a possible call, and a whole line that may be
// an untagged call. And nothing is lost: before_call_ and call_text_ keep a call as it was written, and if it turns out to be
// none, or names nothing, all of it becomes content (finish_call).
// The name and the arguments of a call are told while it is written, so a client sees long arguments grow. That cannot be
// taken back. So a call counts as begun only when its name is complete, and call_end says whether it was valid.
// Arguments in JSON are scanned, not parsed, as they arrive: json_end() counts brackets outside of strings, and remembers its
// place. The whole call is parsed once, at its end (call_ends.cpp).
#include "model/text/tool_calls.h"
#include "base/error.h"
#include "base/json.h"
#include "model/text/fence.h"
#include "model/text/python_json.h"
#include <algorithm>

namespace tq {
namespace {

using Kind = AnswerPart::Kind;

constexpr std::string_view think_tag = "<think>", end_think_tag = "</think>";
constexpr std::string_view parameter_tag = "<parameter=", end_parameter_tag = "</parameter>";

// Returns the number of bytes at the end of `text` that may be the beginning of `tag`.
size_t begun_tag(std::string_view text, std::string_view tag) {
    size_t n = std::min(text.size(), tag.size() - 1);
    while (n > 0 && !tag.starts_with(text.substr(text.size() - n))) --n;
    return n;
}

// Whether the name of a tool follows, up to its quote, if what is before it is there.
Match match_tool(std::string_view text, Match before, char quote, const ToolTypes& types) {
    if (before.found != Match::yes) return before;
    const size_t end = std::min(text.find(quote, before.end), text.size());
    const std::string_view name = text.substr(before.end, end - before.end);
    if (end == text.size()) return {types.has_beginning(name) ? Match::more : Match::no};
    return {types.has(std::string(name)) ? Match::yes : Match::no, end + 1};
}

// Whether a text begins with a call that names a tool; <tool_call> may be missing before <function=...>.
decltype(Match::found) match_call(std::string_view text, const ToolTypes& types) {
    const Match tag = match_word(text, 0, call_tag), bare = match_word(text, 0, function_tag);
    if (bare.found == Match::yes) return match_tool(text, bare, '>', types).found;
    if (tag.found != Match::yes) return std::max(tag.found, bare.found);
    const Match xml = match_words(text, tag.end, {function_tag}), json = match_words(text, tag.end, {"{", "\"name\"", ":", "\""});
    return std::max(match_tool(text, xml, '>', types).found, match_tool(text, json, '"', types).found);
}

} // namespace

AnswerParser::AnswerParser(bool in_thinking, ToolTypes types, UntaggedCalls untagged)
    : types_(std::move(types)), untagged_(untagged), state_(in_thinking ? State::reasoning : State::start), gap_(in_thinking),
      may_be_untagged_(untagged != UntaggedCalls::none) {}

void AnswerParser::add(Kind kind, std::string text) {
    if (text.empty() && kind != Kind::call_begin && kind != Kind::call_end) return;
    if (kind != Kind::call_end && kind != Kind::call_begin && !parts_.empty() && parts_.back().kind == kind)
        parts_.back().text += text;
    else
        parts_.push_back({kind, std::move(text), kind < Kind::call_begin ? 0 : calls_});
}

void AnswerParser::take(size_t n) {
    if (in_call_) call_text_ += rest().substr(0, n);
    pos_ += n;
    scanned_ = 0;
}

std::vector<AnswerPart> AnswerParser::push(std::string_view text) {
    pending_ += text;
    while (step()) {
    }
    pending_.erase(0, pos_);
    pos_ = 0;
    return std::exchange(parts_, {});
}

bool AnswerParser::step() {
    switch (state_) {
    case State::start: return step_start();
    case State::reasoning: return step_reasoning();
    case State::content: return step_content();
    case State::untagged: return step_untagged();
    case State::call: return step_call();
    case State::json_arguments: return step_json_arguments();
    case State::function: return step_function();
    case State::value: return step_value();
    case State::text_value: return step_text_value();
    case State::call_close: return step_call_close();
    case State::json_end: return step_json_end();
    case State::json_whole:
    case State::broken: break;
    }
    return step_until_close();
}

bool AnswerParser::step_start() {
    const Match match = match_words(rest(), 0, {think_tag});
    if (match.found == Match::more) return false;
    state_ = match.found == Match::yes ? State::reasoning : State::content;
    gap_ = match.found == Match::yes;
    take(match.end);
    return true;
}

// Newlines at both ends of the thinking are the template's.
bool AnswerParser::step_reasoning() {
    if (gap_) {
        take(std::min(rest().find_first_not_of('\n'), rest().size()));
        if (rest().empty()) return false;
        gap_ = false;
    }
    const size_t close = rest().find(end_think_tag), call = find_call_in_thinking(), end = std::min(close, call);
    std::string_view text = rest().substr(0, end);
    if (end == text.npos) text.remove_suffix(begun_tag(text, end_think_tag));
    const size_t shown = text.find_last_not_of('\n') + 1;
    add(Kind::reasoning, std::string(text.substr(0, shown)));
    const bool by_call = call < close && match_call(rest().substr(call), types_) == Match::yes, ends = by_call || close < call;
    take(!ends ? shown : by_call ? call : close + end_think_tag.size());
    if (!ends) return false;
    unclosed_ = by_call;
    gap_ = !by_call;
    state_ = State::content;
    return true;
}

// Returns the offset at which a call of a known tool begins, or may begin; otherwise npos.
size_t AnswerParser::find_call_in_thinking() const {
    const std::string_view text = rest();
    for (size_t at = text.find('<'); at != text.npos; at = text.find('<', at + 1))
        if (match_call(text.substr(at), types_) != Match::no) return at;
    return text.npos;
}

// Returns whether it cannot be known yet.
bool AnswerParser::step_unclosed() {
    const Match close = match_words(rest(), 0, {end_think_tag});
    if (close.found != Match::yes) return close.found == Match::more;
    take(close.end);
    unclosed_ = false;
    gap_ = true;
    return false;
}

// White space is held back until it is known whether a call follows.
bool AnswerParser::step_content() {
    if (gap_) {
        take(std::min(rest().find_first_not_of('\n'), rest().size()));
        if (rest().empty()) return false;
        gap_ = false;
    }
    if (unclosed_ && step_unclosed()) return false;
    if (gap_) return true;
    if (fence_around_ && step_fence_end()) return false;
    if (may_be_untagged_) {
        if (rest().empty() || begins_untagged()) return state_ != State::content;
    }
    const size_t line = untagged_ == UntaggedCalls::none ? rest().npos : find_untagged(), tag = find_tag(rest().substr(0, line)),
                 open = std::min(tag, line);
    std::string_view text = rest().substr(0, open);
    if (open == text.npos) text.remove_suffix(begun_mark(text));
    size_t shown = text.size();
    while (shown > 0 && is_json_space(text[shown - 1])) --shown;
    unclosed_ &= shown == 0;
    add(Kind::content, std::string(text.substr(0, shown)));
    take(shown);
    if (open == std::string_view::npos) return false;
    call_text_.clear();
    if (line < tag) return step_mark(line - shown);
    const Match opens = match_open(rest(), 0);
    if (opens.found == Match::no) return take(spaces(rest()) + end_call_tag.size()), true; // a tag that ends nothing
    if (opens.found == Match::more) return false;
    before_call_ = rest().substr(0, spaces(rest()));
    open_tagged(before_call_.size());
    return true;
}

// `text`: a beginning of the rest. Returns the offset in it at which a tag of a call begins, or may begin; otherwise npos.
size_t AnswerParser::find_tag(std::string_view text) const {
    const size_t open = text.find(call_tag);
    if (types_.empty()) return open;
    const size_t tag = std::min(open, text.find(end_call_tag));
    for (size_t at = text.find('<'); at < tag; at = text.find('<', at + 1)) {
        const bool is_begun = text.substr(at).starts_with(tools_tag) || text.substr(at).starts_with(function_tag);
        if (is_begun && match_open(rest(), at).found != Match::no) return at;
    }
    return tag;
}

// A tag that begins calls, with white space before it. <function=...> does so alone if it names a tool.
Match AnswerParser::match_open(std::string_view text, size_t at) const {
    const Match tag = match_open_tag(text, at),
                bare = types_.empty() ? Match{Match::no} : match_tool(text, match_words(text, at, {function_tag}), '>', types_);
    return tag.found < bare.found ? bare : tag;
}

// Returns the number of bytes at the end of `text` that may be the beginning of a call.
size_t AnswerParser::begun_mark(std::string_view text) const {
    size_t begun = begun_tag(text, call_tag);
    if (!types_.empty())
        for (const std::string_view tag : {end_call_tag, tools_tag, function_tag}) begun = std::max(begun, begun_tag(text, tag));
    return untagged_ == UntaggedCalls::none ? begun : std::max(begun, begun_tag(text, fence_mark));
}

// `before`: bytes before its tag.
void AnswerParser::open_tagged(size_t before) {
    take(before);
    in_call_ = true;
    const bool bare = rest().starts_with(function_tag), tools = rest().starts_with(tools_tag);
    end_tag_ = bare ? end_function_tag : tools ? end_tools_tag : end_call_tag;
    take(bare ? 0 : tools ? tools_tag.size() : call_tag.size());
    state_ = State::call;
}

// A call in JSON whose members come in the usual order, name and arguments, is told while it is written. One in another order is
// read as a whole at its end (json_whole). A text that is neither becomes content (broken).
// Which form the call has, and its name.
bool AnswerParser::step_call() {
    const std::string_view text = rest();
    const Match xml = match_words(text, 0, {function_tag}), again = match_words(text, 0, {call_tag});
    if (again.found == Match::yes && !types_.empty()) return take(again.end), true;
    if (xml.found == Match::yes) {
        const size_t end = text.find_first_of("><\n", xml.end);
        if (end == text.npos && text.size() - xml.end < max_tag_name_bytes) return false;
        if (end == text.npos || text[end] != '>' || end == xml.end) return give_up(), true;
        begin_call(std::string(text.substr(xml.end, end - xml.end)));
        take(end + 1);
        arguments_ = "{", values_ = 0;
        add(Kind::arguments, "{");
        state_ = State::function;
        return true;
    }
    Match match = match_words(text, 0, {"{", "\"name\"", ":"});
    size_t name = 0;
    if (match.found == Match::yes) match = match_string(text, name = spaces(text, match.end));
    const size_t name_end = match.end;
    if (match.found == Match::yes) match = match_words(text, match.end, {",", "\"arguments\"", ":", "{"});
    if (xml.found == Match::more || match.found == Match::more || again.found == Match::more) return false;
    if (match.found == Match::no) {
        state_ = text[spaces(text)] == '{' ? State::json_whole : State::broken;
        return true;
    }
    const auto decoded = nlohmann::json::parse(text.substr(name, name_end - name), nullptr, false);
    if (!decoded.is_string() || decoded == "") return state_ = State::json_whole, true;
    begin_call(decoded.get<std::string>());
    take(match.end - 1);
    arguments_.clear();
    depth_ = 0, in_string_ = escaped_ = false;
    state_ = State::json_arguments;
    return true;
}

void AnswerParser::begin_call(std::string name) {
    name_ = std::move(name);
    add(Kind::call_begin, name_);
}

void AnswerParser::end_call(bool valid, bool cut) {
    add(Kind::call_end, valid ? std::move(call_text_) : before_call_ + call_text_);
    parts_.back().valid = valid;
    fence_around_ &= valid;
    parts_.back().cut = cut;
    call_text_.clear(), name_.clear();
    ++calls_;
    in_call_ = false;
    state_ = State::content;
}

void AnswerParser::give_up() {
    name_.clear();
    state_ = State::broken;
}

bool AnswerParser::scan_string(char c) {
    if (escaped_ || (in_string_ && c == '\\')) return escaped_ = !escaped_, true;
    if (c != '"' || depth_ == 0) return in_string_;
    in_string_ = !in_string_;
    return true;
}

// Returns the end of the value that the parser is in; npos if it has not come yet.
size_t AnswerParser::json_end() {
    const std::string_view text = rest();
    for (size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (scan_string(c)) continue;
        if (c == '{' || c == '[')
            ++depth_;
        else if ((c == '}' || c == ']') && --depth_ == 0)
            return i + 1;
    }
    return text.npos;
}

bool AnswerParser::step_json_arguments() {
    const size_t end = json_end();
    const std::string text(rest().substr(0, end));
    arguments_ += text;
    add(Kind::arguments, text);
    take(text.size());
    if (end == std::string_view::npos) return false;
    state_ = State::json_end;
    return true;
}

// The rest of a call is not looked at before its end.
bool AnswerParser::step_until_close() {
    const size_t from = scanned_ > end_tag_.size() ? scanned_ - end_tag_.size() : 0, close = rest().find(end_tag_, from);
    scanned_ = rest().size();
    if (close == std::string_view::npos) return false;
    take(close + end_tag_.size());
    finish_call(false);
    return true;
}

// Between the parameters of a function.
bool AnswerParser::step_function() {
    const std::string_view text = rest();
    const Match parameter = match_words(text, 0, {parameter_tag}), close = match_words(text, 0, {end_function_tag});
    if (close.found == Match::yes) {
        take(close.end);
        add(Kind::arguments, "}");
        state_ = State::call_close;
        return true;
    }
    if (parameter.found == Match::more || close.found == Match::more) return false;
    const size_t end = parameter.found == Match::yes ? text.find_first_of("><\n", parameter.end) : text.npos;
    if (parameter.found == Match::yes && end == text.npos && text.size() - parameter.end < max_tag_name_bytes) return false;
    if (end == text.npos || text[end] != '>' || end == parameter.end) return state_ = State::broken, true;
    const std::string name(text.substr(parameter.end, end - parameter.end));
    take(end + 1);
    begin_value(name);
    return true;
}

void AnswerParser::begin_value(std::string_view name) {
    type_ = types_.type(name_, std::string(name));
    add(Kind::arguments, fmt::format("{}\"{}\": {}", values_++ == 0 ? "" : ", ", json_string_part(name),
                                     type_ == ToolTypes::Type::text ? "\"" : ""));
    value_begun_ = false;
    state_ = type_ == ToolTypes::Type::text ? State::text_value : State::value;
}

// A value that is no text is told when it is complete, because its JSON depends on all of it.
bool AnswerParser::step_value() {
    const size_t from = scanned_ > end_parameter_tag.size() ? scanned_ - end_parameter_tag.size() : 0,
                 close = rest().find(end_parameter_tag, from);
    scanned_ = rest().size();
    if (close == std::string_view::npos) return false;
    std::string_view value = rest().substr(0, close);
    if (value.starts_with('\n')) value.remove_prefix(1);
    if (value.ends_with('\n')) value.remove_suffix(1);
    add(Kind::arguments, parameter_json(value, type_));
    take(close + end_parameter_tag.size());
    state_ = State::function;
    return true;
}

// A text is passed on as it comes, but for one newline at each end, which is the template's.
bool AnswerParser::step_text_value() {
    if (!value_begun_) {
        if (rest().empty()) return false;
        if (rest()[0] == '\n') take(1);
        value_begun_ = true;
    }
    const size_t close = rest().find(end_parameter_tag);
    std::string_view text = rest().substr(0, close);
    if (close == text.npos) text.remove_suffix(begun_tag(text, end_parameter_tag));
    if (text.ends_with('\n')) text.remove_suffix(1);
    add(Kind::arguments, json_string_part(text));
    if (close == std::string_view::npos) return take(text.size()), false;
    add(Kind::arguments, "\"");
    take(close + end_parameter_tag.size());
    state_ = State::function;
    return true;
}

bool AnswerParser::step_call_close() {
    const Match close = match_words(rest(), 0, {end_call_tag});
    if (close.found == Match::more) return false;
    if (close.found == Match::no && end_tag_ != end_function_tag) return state_ = State::broken, true;
    take(close.end);
    end_call(true);
    return true;
}

} // namespace tq
