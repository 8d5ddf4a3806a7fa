// The engine that both sides of a soak run: the same model on the same device with the same cache.
#pragma once
#include "model/forward.h"
#include "model/weights/weights.h"
#include "runtime/device.h"
#include "tests/soak/plan.h"
#include <filesystem>

namespace tq::soak {

struct EngineOptions {
    std::filesystem::path model;
    std::string device; // "cpu", or a device's number or a part of its name
    KvOptions kv;
    bool deterministic;
};

inline constexpr uint32_t slots = 8, block = 32;
inline constexpr uint32_t pages = 12; // fewer than the slots can have

class Engine {
  public:
    explicit Engine(const EngineOptions& options);

    Forward& forward() { return *forward_; }
    const Config& config() const { return config_; }

  private:
    std::unique_ptr<ModelFile> file_;
    Config config_;
    Weights weights_;
    std::unique_ptr<Device> device_; // null: the CPU
    std::unique_ptr<Forward> forward_;
};

uint32_t most_likely(std::span<const float> logits);

// Runs the requests one after the other, each from an empty cache.
Answers run_serially(Engine& engine, const std::vector<Request>& plan);

} // namespace tq::soak
