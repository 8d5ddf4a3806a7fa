#include "tests/support/parsed_answer.h"

namespace tq {

ParsedAnswer parse_answer(std::string_view text, bool in_thinking, ToolTypes types, UntaggedCalls untagged) {
    AnswerParser parser(in_thinking, std::move(types), untagged);
    std::vector<AnswerPart> parts = parser.push(text);
    for (AnswerPart& part : parser.finish()) parts.push_back(std::move(part));
    ParsedAnswer answer;
    ParsedAnswer::Call call;
    for (AnswerPart& part : parts) {
        switch (part.kind) {
        case AnswerPart::Kind::reasoning: answer.reasoning += part.text; break;
        case AnswerPart::Kind::content: answer.content += part.text; break;
        case AnswerPart::Kind::call_begin: call = {std::move(part.text), ""}; break;
        case AnswerPart::Kind::arguments: call.arguments += part.text; break;
        case AnswerPart::Kind::call_end:
            if (part.valid)
                answer.calls.push_back(std::move(call));
            else
                answer.content += part.text;
        }
    }
    return answer;
}

} // namespace tq
