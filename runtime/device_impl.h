// The implementation of Device. Private to runtime/.
#pragma once
#include "runtime/device.h"
#include "runtime/memory.h"
#include "runtime/open_device.h"
#include "runtime/pipelines.h"
#include <map>
#include <optional>

namespace tq {

struct Device::Impl : OpenDevice {
    VkQueue queue{};
    std::map<Memory, Arena> arenas;
    std::optional<Pipelines> pipelines;
    std::map<std::string, ProfileRow> profile;

    size_t allocations() const {
        size_t count = 0;
        for (const auto& [memory, arena] : arenas) count += arena.blocks();
        return count;
    }

    Impl(std::string_view selector, std::string_view profile) : OpenDevice(open_device(selector, profile, Use::run)) {}
};

} // namespace tq
