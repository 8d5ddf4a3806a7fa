// tq-run template: converts a conversation in JSON to the prompt that the model gets.
#include "base/error.h"
#include "base/printable.h"
#include "model/formats/open.h"
#include "model/text/chat_template.h"
#include "tools/tq-run/commands.h"
#include "tools/tq-run/engine.h"
#include "tools/tq-run/json_input.h"
#include <nlohmann/json.hpp>

namespace tq {
namespace {

struct TemplateArguments {
    ModelSource model;
    std::string variant; // empty: the model's
};

ChatVariant parse_variant(const std::string& name) {
    if (name == "hybrid") return ChatVariant::hybrid;
    if (name == "thinking") return ChatVariant::thinking;
    if (name == "instruct") return ChatVariant::instruct;
    if (name == "coder") return ChatVariant::coder;
    if (name == "llama3") return ChatVariant::llama3;
    if (name == "llama31") return ChatVariant::llama31;
    if (name == "llama32") return ChatVariant::llama32;
    fail("it must be hybrid, thinking, instruct, coder, llama3, llama31 or llama32, not {}", printable(name));
}

bool boolean(const nlohmann::ordered_json& input, const char* key, bool fallback) {
    const auto found = input.find(key);
    if (found == input.end()) return fallback;
    if (!found->is_boolean()) fail("\"{}\" in the input is neither true nor false", key);
    return found->get<bool>();
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
    options.add_generation_prompt = boolean(input, "add_generation_prompt", false); // as in Hugging Face's apply_chat_template
    options.enable_thinking = boolean(input, "enable_thinking", true);
    const auto tools = input.contains("tools") ? input["tools"] : nlohmann::ordered_json();
    write_output(to_text(render_chat(messages, tools, options)));
    return 0;
}

} // namespace

void add_template(ArgumentParser& app, Action& action) {
    const auto flags = [](ArgumentParser& command, TemplateArguments& a) {
        add_model_flags(command, a.model);
        command.get_option("--model").description("model whose chat template is used; default: that of Qwen3's hybrid models");
        command
            .add_option("--variant", a.variant,
                        "template to use instead of a model's: hybrid, thinking, instruct, coder, llama3, llama31, llama32; "
                        "default: the model's")
            .option_text("NAME")
            .excludes("--model")
            .check(parsed_by(parse_variant))
            .values("hybrid thinking instruct coder llama3 llama31 llama32");
        command.footer("Standard input: {\"messages\": [...], \"tools\"?, \"add_generation_prompt\"?, \"enable_thinking\"?}");
    };
    add_command<TemplateArguments>(app, action, "template", "Render a conversation (JSON) as its prompt text", flags, run);
}

} // namespace tq
