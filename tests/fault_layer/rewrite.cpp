#include "tests/fault_layer/rewrite.h"
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <optional>

namespace tq::fault {
namespace {

constexpr uint32_t header_words = 5, op_constant = 43, op_spec_constant = 50;

// Operations of one form: result type, result, two operands. Operations that may replace each other have the same `kind`.
struct Operation {
    const char* name;
    uint32_t opcode;
    int kind;
};
constexpr Operation operations[] = {
    {"IAdd", 128, 0},
    {"ISub", 130, 0},
    {"IMul", 132, 0},
    {"FAdd", 129, 1},
    {"FSub", 131, 1},
    {"FMul", 133, 1},
    {"FDiv", 136, 1},
    {"UGreaterThan", 172, 2},
    {"SGreaterThan", 173, 2},
    {"UGreaterThanEqual", 174, 2},
    {"SGreaterThanEqual", 175, 2},
    {"ULessThan", 176, 2},
    {"SLessThan", 177, 2},
    {"ULessThanEqual", 178, 2},
    {"SLessThanEqual", 179, 2},
    {"FOrdLessThan", 184, 3},
    {"FOrdGreaterThan", 186, 3},
    {"FOrdLessThanEqual", 188, 3},
    {"FOrdGreaterThanEqual", 190, 3},
};

[[noreturn]] void refuse(std::string_view change, const char* why) {
    std::fprintf(stderr, "fault layer: TQ_FAULT_REWRITE: \"%.*s\": %s\n", int(change.size()), change.data(), why);
    std::_Exit(99);
}

const Operation* find(std::string_view name) {
    for (const Operation& one : operations)
        if (name == one.name) return &one;
    return nullptr;
}

std::optional<uint32_t> number(std::string_view text) {
    const int base = text.starts_with("0x") ? 16 : 10;
    if (base == 16) text.remove_prefix(2);
    uint32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (error != std::errc() || end != text.data() + text.size()) return {};
    return value;
}

// The first word of the n-th instruction, from 1, that `wanted` accepts; nullptr if there are fewer.
template <class Wanted> uint32_t* nth(std::vector<uint32_t>& code, uint32_t n, Wanted wanted) {
    for (size_t at = header_words; at < code.size() && code[at] >> 16 != 0; at += code[at] >> 16)
        if (at + (code[at] >> 16) <= code.size() && wanted(&code[at]) && --n == 0) return &code[at];
    return nullptr;
}

} // namespace

std::vector<uint32_t> rewritten(std::span<const uint32_t> code, std::string_view change) {
    std::vector<uint32_t> changed(code.begin(), code.end());
    const size_t colon = change.find(':'), equals = change.find('=');
    if (colon == std::string_view::npos || equals == std::string_view::npos || colon > equals)
        refuse(change, "it is neither OPERATION:N=OPERATION nor constant:BITS=BITS");
    const std::string_view what = change.substr(0, colon), to = change.substr(equals + 1);
    const auto from = number(change.substr(colon + 1, equals - colon - 1));
    if (what == "constant") {
        const auto bits = number(to);
        if (!from || !bits) refuse(change, "bits are 32-bit numbers, such as 0x3f800000");
        uint32_t* const found = nth(changed, 1, [&](const uint32_t* words) {
            const uint32_t opcode = words[0] & 0xffff;
            return (opcode == op_constant || opcode == op_spec_constant) && words[0] >> 16 == 4 && words[3] == *from;
        });
        if (!found) refuse(change, "the kernel has no such constant");
        found[3] = *bits;
        return changed;
    }
    const Operation *const old = find(what), *const made = find(to);
    if (!old || !made || old->kind != made->kind) refuse(change, "these are not two operations that may replace each other");
    if (!from || *from == 0) refuse(change, "operations are counted from 1");
    uint32_t* const found = nth(changed, *from, [&](const uint32_t* words) { return (words[0] & 0xffff) == old->opcode; });
    if (!found) refuse(change, "the kernel has not so many of them");
    *found = (*found & 0xffff0000u) | made->opcode;
    return changed;
}

} // namespace tq::fault
