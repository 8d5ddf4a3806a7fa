// A model's chat template, which is recognised, then messages and tools, each after a line with a single "-": rendered as every
// variant renders them.
#include "base/json.h"
#include "model/files/formats/huggingface.h"
#include "model/text/chat_template.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

nlohmann::ordered_json parsed(std::string_view text) {
    return tq::build_json<nlohmann::ordered_json>(text, "it", {.max_depth = 128}); // as tools/tq-run/cli/json_input.cpp
}

std::string_view take(std::string_view& rest) {
    const size_t cut = std::min(rest.find("\n-\n"), rest.size());
    const std::string_view part = rest.substr(0, cut);
    rest.remove_prefix(std::min(cut + 3, rest.size()));
    return part;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    std::string_view rest = tq::fuzz::text(data, size);
    const std::string_view source = take(rest), messages = take(rest), tools = take(rest);
    return tq::fuzz::run([&] {
        tq::ModelFile file(tq::fuzz::directory());
        file.mutable_metadata().emplace("tokenizer.chat_template", source);
        const tq::ChatVariant recognised = tq::chat_variant(file);
        const nlohmann::ordered_json list = parsed(messages), tool_list = tools.empty() ? nullptr : parsed(tools);
        for (const bool think : {true, false}) {
            const auto pieces = tq::render_chat(list, tool_list, {recognised, think, think});
            for (size_t i = 0; i < pieces.size(); i++)
                if (pieces[i].text.empty() || (i > 0 && pieces[i].markup == pieces[i - 1].markup)) std::abort();
            tq::to_text(pieces);
        }
    });
}
