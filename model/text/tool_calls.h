// An answer while it is streamed, divided into thinking, text and tool calls. Three forms of calls are known:
//   <tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>                                              Qwen3 (Hermes)
//   <tool_call><function=f><parameter=x>1</parameter></function></tool_call>                                 Qwen3-Coder, Qwen3.5
//   {"name": "f", "parameters": {"x": 1}}             Llama 3.1: the whole answer, or several with semicolons between them
// What models make of them is known, too: <tools> for <tool_call>, or only the tag at the end (Qwen2.5-Coder); no <tool_call>
// before the function (Qwen3-Coder).
#pragma once
#include "model/text/match.h"
#include "model/text/tool_types.h"
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tq {

struct AnswerPart {
    enum class Kind {
        reasoning,  // text between <think> and </think>, or a call that names a tool of the request: some models forget </think>
        content,    // text beside the thinking and the calls
        call_begin, // text: the name of the function
        arguments,  // text: the next part of the call's arguments, JSON
        call_end,   // text: all of the call as the model wrote it, with its tags; of one that is not valid also the space before
    };
    Kind kind;
    std::string text;
    size_t call = 0;   // number of the call, from 0
    bool valid = true; // of call_end: the arguments are a JSON object, and the call ended as it should; else they are what came
    bool cut = false;  // of call_end: the answer was cut off within the call, whose arguments are a beginning
};

// Places of calls without tags: a JSON object that names a tool of the request, and has "arguments" or "parameters", also within
// "function"; or a list of such objects.
enum class UntaggedCalls {
    none,
    alone,   // the model forgot the tags: objects at the answer's end that begin a line, or are in a fence of Markdown
    several, // the same, and at the beginning, and after another untagged call: Llama's form
};

class AnswerParser {
  public:
    // `in_thinking`: the prompt has opened <think>. `tools`: the list that the template got, or null; the types of its parameters
    // decide which values of Qwen3-Coder's form are texts: without them all are. Nothing of a text that may be an untagged call
    // is returned before that is known.
    explicit AnswerParser(bool in_thinking = false, ToolTypes types = {}, UntaggedCalls untagged = UntaggedCalls::none);

    // Appends text, complete characters of UTF-8, and returns the parts that are now certain. The joined parts do not depend on
    // how the answer is divided, and nothing is lost but newlines around the thinking, white space between text and calls, fences
    // around calls, and a </think> behind calls that ended the thinking: what only looks like a call is content. If there are
    // tools, tags of calls are never content: what they surround is a call if its name and the beginning of its arguments can be
    // read, else its text is content.
    std::vector<AnswerPart> push(std::string_view text);
    // The answer is at its end; the parser must not be used any more. `cut`: the model did not end it. A call that is cut off is
    // never content: it is a call with a beginning of its arguments, or nothing if its name is not known. If there are tools, the
    // same holds for a call in the middle of which the model ends.
    std::vector<AnswerPart> finish(bool cut = false);

    bool in_thinking() const { return state_ == State::reasoning; } // certain parts

  private:
    enum class State {
        start,
        reasoning,
        content,
        untagged,
        call,
        json_arguments,
        json_end,
        json_whole,
        function,
        value,
        text_value,
        call_close,
        broken
    };

    bool step();
    bool step_start();
    bool step_reasoning();
    size_t find_call_in_thinking() const;
    bool step_unclosed();
    bool step_content();
    bool begins_untagged();
    size_t find_untagged() const;
    bool step_mark(size_t before);
    void open_untagged(size_t before, bool native);
    bool step_untagged();
    bool step_fence_end();
    void open_tagged(size_t before);
    bool add_untagged(std::string_view text);
    void finish_untagged(const std::string& text, bool cut);
    bool step_call();
    bool step_json_arguments();
    bool step_until_close();
    bool step_json_end();
    size_t find_tag(std::string_view text) const;
    Match match_open(std::string_view text, size_t at) const;
    size_t begun_mark(std::string_view text) const;
    bool step_function();
    bool step_value();
    bool step_text_value();
    bool step_call_close();
    bool scan_string(char c); // whether the next character of JSON is of a text, quotes included
    size_t json_end();
    void finish_call(bool at_end);
    void end_without_name(bool at_end);
    std::string_view call_body() const; // without its tags

    std::string_view rest() const { return std::string_view(pending_).substr(pos_); }
    void take(size_t n); // of the rest; within a call it is kept
    void add(AnswerPart::Kind kind, std::string text);
    void begin_call(std::string name);
    void begin_value(std::string_view name);
    void end_call(bool valid, bool cut = false);
    void give_up(); // a call that has not begun is content
    struct Object {
        size_t begin, end = 0; // 0: not yet
    };
    struct WholeCall {
        std::string name, arguments;
        bool valid = true;
    };
    std::optional<WholeCall> read_whole_call(std::string_view text, bool untagged) const;
    static std::optional<WholeCall> read_broken_call(std::string_view text);
    bool read_whole_json(std::string_view text);

    const ToolTypes types_;
    const UntaggedCalls untagged_;
    State state_;
    std::string pending_; // the undecided text begins at pos_
    size_t pos_ = 0, scanned_ = 0;
    std::string before_call_, call_text_, name_, arguments_; // before_call_: white space, content if there is no call
    std::string_view end_tag_;                               // of the call
    bool in_call_ = false, gap_ = false, may_be_untagged_;   // may_be_untagged_: an untagged call may begin here
    bool in_fence_ = false, native_ = false;                 // in_fence_: of what is no call; native_: of an untagged call
    bool fence_around_ = false;                              // of calls with tags
    bool unclosed_ = false;                                  // calls ended the thinking, whose </think> may still come
    std::vector<Object> objects_;                            // in the rest, which may be calls without tags
    enum class List { none, begun, ended } list_ = List::none;
    size_t calls_ = 0, depth_ = 0, values_ = 0;
    bool in_string_ = false, escaped_ = false, value_begun_ = false;
    ToolTypes::Type type_ = ToolTypes::Type::text;
    std::vector<AnswerPart> parts_;
};

struct ParsedAnswer {
    struct Call {
        std::string name, arguments;
    };
    std::string reasoning, content;
    std::vector<Call> calls; // also those whose arguments are no JSON, but not those that were cut off
};

} // namespace tq
