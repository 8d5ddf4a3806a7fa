// An answer with thinking and tool calls, whole and byte by byte: the same parts, and arguments that are JSON if a call is
// valid.
#include "model/text/tool_calls.h"
#include "model/text/unicode.h"
#include "tests/fuzz/fuzz_target.h"
#include <algorithm>
#include <nlohmann/json.hpp>

namespace {

// All that the parts say, however they are divided; valid calls are checked.
std::string read(std::string_view text, size_t step, tq::UntaggedCalls untagged) {
    static const auto tools = nlohmann::ordered_json::parse(
        R"([{"name": "f", "parameters": {"properties": {"n": {"type": "integer"}, "e": {}, "t": {"type": "string"}}}}])");
    tq::AnswerParser parser(false, tq::ToolTypes(tools), untagged);
    std::string said[3], arguments;
    const auto take = [&](const std::vector<tq::AnswerPart>& parts) {
        for (const tq::AnswerPart& part : parts) {
            const auto kind = size_t(part.kind);
            if (kind < 2) {
                said[kind] += part.text;
                continue;
            }
            said[2] += part.text + (part.valid ? "" : "!");
            if (part.kind == tq::AnswerPart::Kind::call_begin) arguments.clear();
            if (part.kind == tq::AnswerPart::Kind::arguments) arguments += part.text;
            const bool ends = part.kind == tq::AnswerPart::Kind::call_end && part.valid;
            if (ends && !nlohmann::ordered_json::parse(arguments, nullptr, false).is_object()) std::abort();
        }
    };
    for (size_t i = 0; i < text.size(); i += step) take(parser.push(text.substr(i, step)));
    take(parser.finish());
    return said[0] + "\x1E" + said[1] + "\x1E" + said[2];
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view text = tq::fuzz::text(data, size);
    if (tq::find_invalid_utf8(text)) return 0; // it gets complete characters only
    const bool is_ascii = std::all_of(data, data + size, [](uint8_t byte) { return byte < 0x80; });
    return tq::fuzz::run([&] {
        for (const auto untagged : {tq::UntaggedCalls::none, tq::UntaggedCalls::alone, tq::UntaggedCalls::several}) {
            const std::string whole = read(text, text.size() + 1, untagged);
            if (is_ascii && size < 4096 && read(text, 1, untagged) != whole) std::abort();
        }
    });
}
