// tq-run template: converts a conversation in JSON to the prompt that the model gets.
// The fields of the input have the names and defaults of Hugging Face's apply_chat_template; so no generation prompt is added
// unless the input asks for one. Without --variant the template is that of the model's file, and so is the system prompt that its
// template has for conversations without one: it is put before the messages here, as render_chat() does not know the file. The
// output is text, in which markup and content look alike. Chats do not encode it, but the pieces that it is made of.
#include "base/error.h"
#include "base/printable.h"
#include "model/files/formats/open.h"
#include "model/text/chat_template.h"
#include "tools/tq-run/cli/json_input.h"
#include "tools/tq-run/commands.h"
#include "tools/tq-run/engine/engine.h"
#include <nlohmann/json.hpp>

namespace tq {
namespace {

struct TemplateArguments {
    ModelSource model;
    std::string variant; // empty: the model's
};

std::string variant_names(std::string_view between) {
    std::string all;
    for (const auto& [name, variant] : chat_variant_names) (all += all.empty() ? "" : between) += name;
    return all;
}

ChatVariant parse_variant(const std::string& name) {
    if (const auto variant = find_chat_variant(name)) return *variant;
    fail("it must be one of {}, not {}", variant_names(", "), printable(name));
}

std::optional<bool> optional_boolean(const nlohmann::ordered_json& input, const char* key) {
    const auto found = input.find(key);
    if (found == input.end()) return std::nullopt;
    if (!found->is_boolean()) fail("\"{}\" in the input is neither true nor false", key);
    return found->get<bool>();
}

std::optional<ReasoningEffort> optional_effort(const nlohmann::ordered_json& input) {
    const auto found = input.find("reasoning_effort");
    if (found == input.end()) return std::nullopt;
    const auto effort = found->is_string() ? find_effort(found->get_ref<const std::string&>()) : std::nullopt;
    if (!effort) fail("\"reasoning_effort\" in the input is neither low, medium, high nor xhigh");
    return effort;
}

int run(const TemplateArguments& arguments) {
    const std::string text = read_input();
    if (text.empty()) fail("standard input is empty: give {{\"messages\": [...]}} (see tq-run template --help)");
    const auto input = parse_json(text, "standard input");
    if (!input.is_object() || !input.contains("messages"))
        fail("standard input is not a JSON object with a list of \"messages\"");
    ChatOptions options;
    Console console(ColorMode::automatic, false);
    auto messages = input["messages"];
    if (!arguments.model.is_demo()) {
        const ModelFile file = open_model_file(find_model(arguments.model, console));
        options.variant = chat_variant(file);
        const std::string system = default_system_prompt(file);
        const bool has_own = messages.is_array() && !messages.empty() && messages[0].is_object() &&
                             messages[0].value("role", nlohmann::ordered_json()) == "system";
        if (!system.empty() && messages.is_array() && !has_own)
            messages.insert(messages.begin(), nlohmann::ordered_json{{"role", "system"}, {"content", system}});
    }
    if (!arguments.variant.empty()) options.variant = parse_variant(arguments.variant);
    // The defaults are those of Hugging Face's apply_chat_template.
    options.add_generation_prompt = optional_boolean(input, "add_generation_prompt").value_or(false);
    options.enable_thinking = optional_boolean(input, "enable_thinking");
    options.preserve_thinking = optional_boolean(input, "preserve_thinking");
    options.effort = optional_effort(input).value_or(options.effort);
    const auto tools = input.contains("tools") ? input["tools"] : nlohmann::ordered_json();
    write_output(to_text(render_chat(messages, tools, options)));
    return 0;
}

} // namespace

void add_template(ArgumentParser& app, Action& action) {
    const auto flags = [](ArgumentParser& command, TemplateArguments& a) {
        add_model_flags(command, a.model);
        command.get_option("--model").description("model whose chat template is used; default: that of Qwen3's hybrid models");
        add_option(command, "--variant", a.variant, "NAME",
                   fmt::format("template to use instead of a model's: {}; default: the model's", variant_names(", ")))
            .excludes("--model")
            .check(parsed_by(parse_variant))
            .values(variant_names(" "));
        command.footer("Standard input: {\"messages\": [...], \"tools\"?, \"add_generation_prompt\"?, \"enable_thinking\"?, "
                       "\"preserve_thinking\"?, \"reasoning_effort\"?}");
    };
    add_command<TemplateArguments>(app, action, "template", "Render a conversation (JSON) as its prompt text", flags, run);
}

} // namespace tq
