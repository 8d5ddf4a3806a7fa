// Constraints on the tokens of an answer. They are put around one another: a limit of the thinking around a format and the calls
// of tools. Each sees every token (accept) and changes the logits before the next is sampled (apply). A grammar is compiled once
// for a request and shared by its choices.
// A format is for the answer, not for the thinking before it, and the prompt may have begun that: ThinkingPlace follows where
// the answer is. If tools may be called beside a format, <tool_call> is allowed until the format has begun; what comes
// first holds from then on (FormatOrCalls).
// After its budget the thinking is ended by allowing </think> alone; its logit is kept, or 0 if it is not finite, so that
// exactly one token can be sampled.
#include "tools/server/constraints.h"
#include "model/text/grammar/gbnf.h"
#include "model/text/grammar/json_schema.h"
#include "model/text/grammar/state_table.h"
#include "model/text/grammar/tool_grammar.h"
#include <algorithm>
#include <cmath>

namespace tq::server {
namespace {

// Tells whether an answer, which may begin with its thinking, is before it, inside it or after it.
class ThinkingPlace {
  public:
    ThinkingPlace(const Thinking& thinking, const Tokenizer& tokenizer)
        : think_(tokenizer.special("<think>")), end_think_(tokenizer.special("</think>")),
          call_(tokenizer.special("<tool_call>")), state_(thinking.open       ? State::inside
                                                          : thinking.possible ? State::before
                                                                              : State::after) {}

    void accept(uint32_t id) {
        if (state_ == State::inside && (id == end_think_ || id == call_)) // some models forget to end it before a call
            state_ = State::after;
        else if (state_ == State::before)
            state_ = id == think_ ? State::inside : State::after;
    }
    bool inside() const { return state_ == State::inside; }

  private:
    enum class State { before, inside, after };
    std::optional<uint32_t> think_, end_think_, call_;
    State state_;
};

// Allows only </think> once the thinking has as many tokens as its budget.
class ThinkingLimit final : public TokenConstraint {
  public:
    ThinkingLimit(const Thinking& thinking, const Tokenizer& tokenizer, std::unique_ptr<TokenConstraint> next)
        : place_(thinking, tokenizer), end_(*tokenizer.special("</think>")), left_(*thinking.budget), next_(std::move(next)) {}

    void apply(std::span<float> logits) override {
        if (next_) next_->apply(logits);
        if (!place_.inside() || left_ > 0 || end_ >= logits.size()) return;
        const float end = std::isfinite(logits[end_]) ? logits[end_] : 0;
        std::ranges::fill(logits, -INFINITY);
        logits[end_] = end;
    }
    void accept(uint32_t id) override {
        if (place_.inside() && left_ > 0) --left_;
        place_.accept(id);
        if (next_) next_->accept(id);
    }

  private:
    ThinkingPlace place_;
    const uint32_t end_;
    uint32_t left_;
    std::unique_ptr<TokenConstraint> next_;
};

// Either the format, or calls from the beginning on.
class FormatOrCalls final : public TokenConstraint {
  public:
    FormatOrCalls(const Thinking& thinking, const Tokenizer& tokenizer, std::shared_ptr<const grammar::TokenTrie> trie,
                  std::unique_ptr<TokenConstraint> format, std::unique_ptr<TokenConstraint> calls)
        : place_(thinking, tokenizer), call_(*tokenizer.special("<tool_call>")), trie_(std::move(trie)),
          format_(std::move(format)), calls_(std::move(calls)) {}

    void apply(std::span<float> logits) override {
        if (called_) return calls_->apply(logits);
        const bool may_call = !begun_ && call_ < logits.size();
        const float call = may_call ? logits[call_] : 0;
        format_->apply(logits);
        if (may_call) logits[call_] = call;
    }
    void accept(uint32_t id) override {
        const bool was_inside = place_.inside();
        place_.accept(id);
        if (!called_ && !begun_ && id == call_) called_ = true;
        if (called_) return calls_->accept(id);
        const std::string_view bytes = id < trie_->vocab_size() ? trie_->bytes(id) : std::string_view();
        begun_ |= !was_inside && !place_.inside() && bytes.find_first_not_of('\n') != bytes.npos;
        format_->accept(id);
    }

  private:
    ThinkingPlace place_;
    const uint32_t call_;
    const std::shared_ptr<const grammar::TokenTrie> trie_;
    const std::unique_ptr<TokenConstraint> format_, calls_;
    bool begun_ = false, called_ = false; // the format, a call
};

// Runs what may throw an Error because of the field.
template <class Make> auto checked(const char* field, const Make& make) {
    try {
        return make();
    } catch (const ApiError&) {
        throw;
    } catch (const Error& error) {
        bad_request(field, "{}: {}", field, error.what());
    }
}

// Throws an Error if the text is no grammar, or has too many ways to begin.
std::shared_ptr<const grammar::Grammar> compile(Service& service, const std::string& gbnf) {
    auto grammar = service.compile_grammar(gbnf);
    const grammar::StateTable begins(*grammar);
    return grammar;
}

void leave_unchecked(Json& tool) {
    Json& function = tool.contains("function") ? tool["function"] : tool;
    function["parameters"] = {{"type", "object"}};
}

// Parts of a schema that a grammar cannot express go unchecked, and so does a whole schema that is wrong, except for tools whose
// schema must be followed to the letter.
std::string calls_gbnf(const ChatTask& task, ChatVariant variant) {
    const auto form = is_llama(variant)        ? grammar::ToolCallForm::bare
                      : has_xml_calls(variant) ? grammar::ToolCallForm::xml
                                               : grammar::ToolCallForm::json;
    const bool must_call = task.tool_choice == ToolChoice::required || task.tool_choice == ToolChoice::named;
    const std::set<std::string> none, &strict = must_call ? task.strict_tools : none;
    Json tools = task.tools;
    for (Json& tool : tools) {
        try {
            grammar::tool_calls_gbnf(Json::array({tool}), form, "", true, &strict);
        } catch (const Error&) {
            if (!strict.contains(tool.at("function").at("name").get<std::string>())) leave_unchecked(tool);
        }
    }
    const bool named = task.tool_choice == ToolChoice::named; // exactly one call, of that tool
    return grammar::tool_calls_gbnf(tools, form, named ? task.tool_name : "", task.parallel_tool_calls && !named, &strict);
}

} // namespace

Constraints::Constraints(Service& service, const Format& format, bool ignore_end) : service_(service) {
    set_format(format, ignore_end);
}

Constraints::Constraints(Service& service, const ChatTask& task, const Thinking& thinking)
    : service_(service), thinking_(thinking) {
    must_call_ = task.tool_choice == ToolChoice::required || task.tool_choice == ToolChoice::named;
    const bool has_tools = task.tools.is_array() && !task.tools.empty();
    if (must_call_ && !has_tools) bad_request("tool_choice", "\"tool_choice\" asks for a call, but there are no \"tools\"");
    if (!must_call_) set_format(task.format, task.sampling.ignore_end);
    if (has_tools && task.tool_choice != ToolChoice::none && !task.sampling.ignore_end) set_calls(task);
}

bool has_call_tags(const Tokenizer& tokenizer) { return tokenizer.special("<tool_call>") && tokenizer.special("</tool_call>"); }

void Constraints::set_format(const Format& format, bool ignore_end) {
    using Kind = Format::Kind;
    if (format.kind == Kind::text) return;
    format_field_ = format.kind == Kind::gbnf ? "grammar" : "response_format";
    if (ignore_end)
        bad_request("ignore_eos", "\"ignore_eos\" has no use with \"{}\", where the answer ends: leave one of them out",
                    format_field_);
    format_ = checked(format_field_, [&] {
        return format.kind == Kind::json_schema
                   ? compile_schema(format)
                   : compile(service_, format.kind == Kind::gbnf ? format.gbnf : grammar::json_object_gbnf());
    });
}

// A schema that need not be followed to the letter is followed as far as a grammar can say it. If it is wrong or too large as a
// whole, its type is left, or any JSON.
std::shared_ptr<const grammar::Grammar> Constraints::compile_schema(const Format& format) {
    std::set<std::string> left_out;
    const auto say = [&] {
        std::set<std::string> things;
        for (const std::string& one : left_out)
            things.insert(fmt::format("a part of \"{}\" that no grammar follows ({})", format_field_, one));
        service_.say_ignored(things);
    };
    const auto followed = [&](const Json& schema) {
        auto grammar = compile(service_, grammar::json_schema_gbnf(schema, format.strict, &left_out));
        say();
        return grammar;
    };
    const Json& schema = format.schema;
    if (format.strict) return followed(schema);
    Json type = true;
    if (schema.is_object() && schema.contains("type"))
        type = {{"type", schema["type"]}};
    else if (schema.is_object() && schema.contains("properties"))
        type = {{"type", "object"}};
    for (const Json* one : {&schema, static_cast<const Json*>(&type)}) {
        try {
            return followed(*one);
        } catch (const Error& error) {
            left_out.insert(error.what());
        }
    }
    return followed(true);
}

void Constraints::set_calls(const ChatTask& task) {
    const bool can_call = is_llama(service_.model.chat) ? must_call_ // without a tag nothing says where a call begins
                                                        : has_call_tags(service_.model.tokenizer);
    if (!can_call && !must_call_) return;
    if (!can_call)
        bad_request("tool_choice",
                    "\"tool_choice\" asks for a call, but this model has no tokens for calls of tools: leave it out");
    calls_ = checked("tools", [&] {
        try {
            return compile(service_, calls_gbnf(task, service_.model.chat));
        } catch (const Error&) {
            if (must_call_ && !task.strict_tools.empty()) throw;
        }
        ChatTask unchecked = task; // all together were too large
        std::ranges::for_each(unchecked.tools, leave_unchecked);
        return compile(service_, calls_gbnf(unchecked, service_.model.chat));
    });
}

// From the inside outwards: the grammar of the format or of the calls, then the limit of the thinking. A grammar begins where the
// prompt leaves the answer (GrammarStart): within the thinking, before it, or at once. A grammar of calls that need not be made
// is asleep until <tool_call>.
std::unique_ptr<TokenConstraint> Constraints::make() const {
    const Tokenizer& tokenizer = service_.model.tokenizer;
    const auto from = [&](const std::shared_ptr<const grammar::Grammar>& grammar, bool at_call) {
        const GrammarStart start = at_call              ? GrammarStart::at_tool_call
                                   : thinking_.open     ? GrammarStart::in_thinking
                                   : thinking_.possible ? GrammarStart::before_thinking
                                                        : GrammarStart::at_once;
        return checked(grammar == calls_ ? "tools" : format_field_,
                       [&] { return std::make_unique<GrammarConstraint>(grammar, service_.token_trie(), tokenizer, start); });
    };
    std::unique_ptr<TokenConstraint> constraint;
    if (format_ && calls_)
        constraint = std::make_unique<FormatOrCalls>(thinking_, tokenizer, service_.token_trie(), from(format_, false),
                                                     from(calls_, true));
    else if (format_)
        constraint = from(format_, false);
    else if (calls_)
        constraint = from(calls_, !must_call_);
    const bool thinks = thinking_.open || thinking_.possible;
    if (thinking_.budget && thinks && tokenizer.special("<think>") && tokenizer.special("</think>"))
        constraint = std::make_unique<ThinkingLimit>(thinking_, tokenizer, std::move(constraint));
    return constraint;
}

} // namespace tq::server
