// A grammar for calls of tools, in the three forms that models were trained on: JSON in <tool_call> tags, JSON alone (Llama), and
// XML-like parameters (Qwen3-Coder). Each tool is an alternative with its name, so a call always names a tool that exists, and
// its arguments follow the schema of that tool.
// The schemas of all tools are placed in one document and converted together, so that they share the rules of JSON; references
// within a schema move along (move_references()).
// In the XML form texts stand bare, without quotes or escapes, and end with a tag. Such a value may be any text that does not
// contain the tag (tag_free_text()); its pattern and length are not checked. Other values are JSON there too.
// `strict` names the tools whose schemas must be expressed completely; of the others, keywords that a grammar cannot express are
// left out.
#include "model/text/grammar/tool_grammar.h"
#include "base/error.h"
#include "base/printable.h"
#include "model/text/grammar/gbnf_writer.h"
#include "model/text/grammar/interrupt.h"
#include "model/text/grammar/json_schema.h"
#include "model/text/grammar/schema_names.h"
#include <algorithm>
#include <nlohmann/json.hpp>

namespace tq::grammar {
namespace {

using ToolJson = nlohmann::ordered_json;

constexpr std::string_view end_parameter = "</parameter>";

struct Tool {
    std::string name;
    ToolJson parameters; // an object's schema
    bool strict;
};

// Arguments are an object, whatever else a schema that says less would allow.
ToolJson object_schema(ToolJson schema) {
    const auto type = schema.find("type");
    const bool is_open = type == schema.end() && !schema.contains("$ref") && !schema.contains("anyOf") &&
                         !schema.contains("oneOf") && !schema.contains("allOf");
    const bool allows = type != schema.end() && type->is_array() && std::ranges::find(*type, "object") != type->end();
    if (is_open || allows)
        schema["type"] = "object";
    else if (type != schema.end() && *type != "object")
        return {{"type", "object"}};
    return schema;
}

std::vector<Tool> read_tools(const ToolJson& tools, std::string_view only, const std::set<std::string>* strict) {
    std::vector<Tool> found;
    if (!tools.is_array()) fail("\"tools\" is not a list");
    for (size_t i = 0; i < tools.size(); ++i) {
        if (!tools[i].is_object()) fail("tool {} is not an object", i);
        const ToolJson& function =
            tools[i].contains("function") && tools[i]["function"].is_object() ? tools[i]["function"] : tools[i];
        if (!function.contains("name") || !function["name"].is_string() || function["name"] == "") fail("tool {} has no name", i);
        const auto& name = function["name"].get_ref<const std::string&>();
        if (!only.empty() && name != only) continue;
        const auto parameters = function.find("parameters");
        const bool has_none = parameters == function.end() || parameters->is_null() || parameters->empty();
        found.push_back({name, has_none ? ToolJson{{"type", "object"}, {"properties", ToolJson::object()}} : *parameters,
                         !strict || strict->contains(name)});
        if (!found.back().parameters.is_object()) fail("tool {} has parameters that are not a JSON schema", i);
        found.back().parameters = object_schema(std::move(found.back().parameters));
    }
    if (found.empty() && !only.empty()) fail("no tool is named {}", printable(only));
    if (found.empty()) fail("there is no tool that could be called");
    return found;
}

// The schemas lie in one document: the targets of their references move with them.
void move_references(ToolJson& schema, const std::string& to) {
    look_at_interrupt();
    if (const auto reference = schema.is_object() ? schema.find("$ref") : schema.end();
        schema.is_object() && reference != schema.end())
        if (reference->is_string() && reference->get_ref<const std::string&>().starts_with('#'))
            *reference = "#" + to + reference->get<std::string>().substr(1);
    if (schema.is_structured())
        for (ToolJson& part : schema) move_references(part, to);
}

// A text that does not have the tag which would end it: the rule text-N follows N bytes of the tag.
std::string tag_free_text() {
    std::string out;
    for (size_t i = 0; i < end_parameter.size(); ++i) {
        const std::string next(1, end_parameter[i]);
        out += fmt::format("text-{} ::= \"\" | \"<\" text-1 | [^<{}] text-0", i, i == 0 ? "" : next);
        if (i > 0 && i + 1 < end_parameter.size()) out += fmt::format(" | \"{}\" text-{}", next, i + 1);
        out += "\n";
    }
    return out;
}

class ToolGrammar {
  public:
    explicit ToolGrammar(std::vector<Tool> tools) : tools_(std::move(tools)) {
        for (size_t i = 0; i < tools_.size(); ++i) {
            place_references(tools_[i].parameters);
            move_references(tools_[i].parameters, fmt::format("/tools/{}", i));
            document_["tools"].push_back(tools_[i].parameters);
        }
    }

    // `bare`: Llama's form.
    std::string json_calls(bool bare) {
        for (size_t i = 0; i < tools_.size(); ++i) add(fmt::format("/tools/{}", i), tools_[i]);
        const SchemaGrammar arguments = json_schema_rules(document_, pointers_, strict_);
        std::string call = bare ? "call ::= (" : "call ::= <tool_call> \"\\n\"? (";
        for (size_t i = 0; i < tools_.size(); ++i)
            call += fmt::format("{}{} {} \"}}\"", i == 0 ? "" : " | ",
                                gbnf_text(fmt::format("{{\"name\": {}, \"{}\": ", ToolJson(tools_[i].name).dump(),
                                                      bare ? "parameters" : "arguments")),
                                arguments.names[i]);
        return call + (bare ? ")\n" : ") \"\\n\"? </tool_call>\n") + arguments.gbnf;
    }

    std::string xml_calls() {
        for (size_t i = 0; i < tools_.size(); ++i) add(fmt::format("/tools/{}", i), tools_[i]);
        const SchemaGrammar parameters = json_schema_rules(document_, pointers_, strict_, ObjectForm::parameters);
        std::string call = "call ::= <tool_call> \"\\n\" (";
        for (size_t i = 0; i < tools_.size(); ++i)
            call += fmt::format("{}{} {} \"</function>\"", i == 0 ? "" : " | ", gbnf_text("<function=" + tools_[i].name + ">\n"),
                                parameters.names[i]);
        return call + ") \"\\n\" </tool_call>\n" + tag_free_text() + parameters.gbnf;
    }

  private:
    void add(std::string pointer, const Tool& tool) {
        pointers_.push_back(std::move(pointer));
        strict_.push_back(tool.strict);
    }

    std::vector<Tool> tools_;
    ToolJson document_;
    std::vector<std::string> pointers_; // of the tools
    std::vector<bool> strict_;
};

} // namespace

std::string tool_calls_gbnf(const ToolJson& tools, ToolCallForm form, std::string_view only, bool parallel,
                            const std::set<std::string>* strict) {
    ToolGrammar grammar(read_tools(tools, only, strict));
    const bool bare = form == ToolCallForm::bare;
    return fmt::format("root ::= call{}\n", !parallel ? ""
                                            : bare    ? " (\"; \" call)*"
                                                      : " (\"\\n\" call)*") +
           (form == ToolCallForm::xml ? grammar.xml_calls() : grammar.json_calls(bare));
}

} // namespace tq::grammar
