#include "tests/fault_layer/plan.h"
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <iterator>

namespace tq::fault {
namespace {

constexpr const char* names[] = {
#define TQ_FAULT_NAME(name) #name,
    TQ_FAULT_FUNCTIONS(TQ_FAULT_NAME)
#undef TQ_FAULT_NAME
        "vkCreateDevice",
    "vkCreateInstance", "vkEnumeratePhysicalDevices"};
static_assert(std::size(names) == size_t(Function::count));

struct Result {
    const char* name;
    Fault fault;
};
constexpr Result results[] = {
    {"OUT_OF_HOST_MEMORY", {VK_ERROR_OUT_OF_HOST_MEMORY, false}},
    {"OUT_OF_DEVICE_MEMORY", {VK_ERROR_OUT_OF_DEVICE_MEMORY, false}},
    {"OUT_OF_POOL_MEMORY", {VK_ERROR_OUT_OF_POOL_MEMORY, false}},
    {"FRAGMENTED_POOL", {VK_ERROR_FRAGMENTED_POOL, false}},
    {"MEMORY_MAP_FAILED", {VK_ERROR_MEMORY_MAP_FAILED, false}},
    {"INITIALIZATION_FAILED", {VK_ERROR_INITIALIZATION_FAILED, false}},
    {"TOO_MANY_OBJECTS", {VK_ERROR_TOO_MANY_OBJECTS, false}},
    {"DEVICE_LOST", {VK_ERROR_DEVICE_LOST, false}},
    {"NOT_READY", {VK_NOT_READY, false}},
    {"TIMEOUT", {VK_TIMEOUT, false}},
    {"HANG", {VK_TIMEOUT, true}},
    {"CRASH", {VK_ERROR_UNKNOWN, false, true}},
};

[[noreturn]] void refuse(std::string_view entry) {
    std::fprintf(stderr, "fault layer: TQ_FAULT: \"%.*s\" is not FUNCTION:N=RESULT\n", int(entry.size()), entry.data());
    std::_Exit(99);
}

bool needs_device(Function function) {
    switch (function) {
    case Function::vkQueueSubmit:
    case Function::vkQueueWaitIdle:
    case Function::vkWaitForFences:
    case Function::vkGetFenceStatus:
    case Function::vkGetQueryPoolResults: return true;
    default: return false;
    }
}

} // namespace

Plan::Plan(std::string_view text) {
    while (!text.empty()) {
        const size_t end = std::min(text.find(','), text.size());
        add(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
}

void Plan::add(std::string_view entry) {
    const size_t colon = entry.find(':'), equals = entry.find('=');
    if (colon == std::string_view::npos || equals == std::string_view::npos || colon > equals) refuse(entry);
    const std::string_view function = entry.substr(0, colon), result = entry.substr(equals + 1);
    std::string_view number = entry.substr(colon + 1, equals - colon - 1);
    Entry made{Function::count, 0, number.ends_with('+'), std::string(result), {}};
    if (made.and_after) number.remove_suffix(1);
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), made.first);
    if (error != std::errc() || end != number.data() + number.size() || made.first == 0) refuse(entry);
    for (uint32_t i = 0; i < std::size(names); i++)
        if (function == names[i]) made.function = Function(i);
    const Result* found = nullptr;
    for (const Result& one : results)
        if (result == one.name) found = &one;
    if (made.function == Function::count || !found) refuse(entry);
    made.fault = found->fault;
    entries_.push_back(std::move(made));
}

std::optional<Fault> Plan::strike(Function function) {
    const uint64_t n = ++calls_[size_t(function)];
    if (function == Function::vkCreateDevice) for_ever_.reset();
    for (const Entry& entry : entries_) {
        if (entry.function != function || n < entry.first || (n > entry.first && !entry.and_after)) continue;
        if (entry.fault.result == VK_ERROR_DEVICE_LOST || entry.fault.hangs) for_ever_ = entry.fault;
        struck_ += "fault " + std::string(names[size_t(function)]) + ' ' + std::to_string(n) + ' ' + entry.result + '\n';
        return entry.fault;
    }
    if (!for_ever_ || !needs_device(function) || (for_ever_->hangs && function != Function::vkWaitForFences)) return {};
    return for_ever_;
}

std::string Plan::report() const {
    std::string text;
    for (size_t i = 0; i < std::size(names); i++)
        if (calls_[i]) text += std::string(names[i]) + ' ' + std::to_string(calls_[i]) + '\n';
    return text + struck_;
}

} // namespace tq::fault
