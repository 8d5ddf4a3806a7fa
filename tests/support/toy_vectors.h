// The vectors of a toy cache: a test overrides what it uses of CacheVectors; windows are nothing, and the rest is not offered.
#pragma once
#include "base/ensure.h"
#include "model/cache_vectors.h"

namespace tq {

class ToyVectors : public CacheVectors {
  public:
    PageLayout page_layout() const override { return {0, {}}; }
    void read_page(uint32_t page, uint32_t, std::span<std::byte>) const override { ENSURE(false, "page {}", page); }
    void write_page(uint32_t page, uint32_t, std::span<const std::byte>) override { ENSURE(false, "page {}", page); }
    void copy_page(uint32_t, uint32_t, uint32_t) override {}
    void copy_window(uint32_t, uint32_t) override {}
    void read_window(uint32_t, uint32_t, uint32_t, std::span<std::byte>) const override {}
    void write_window(uint32_t, uint32_t, uint32_t, std::span<const std::byte>) override {}
    StoredSide stored(uint32_t slot, uint32_t layer, KvSide) const override {
        ENSURE(false, "slot {}, layer {}", slot, layer);
        return {{}, 0, 0};
    }
    void repeat(uint32_t slot, uint32_t, uint32_t) override { ENSURE(false, "slot {}", slot); }
    std::optional<std::string> find_nonfinite(uint32_t) const override { return std::nullopt; }
};

} // namespace tq
