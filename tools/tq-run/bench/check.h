// The checks of a device before bench times anything: correct logits, with an exact cache and with the one that is timed.
#pragma once
#include "tools/check/conformance/logits.h"
#include "tools/tq-run/engine/setup.h"

namespace tq::bench {

struct Check {
    conformance::LogitsCheck exact, cache; // with f32 keys and values; with the cache that is timed
};

class Checker {
  public:
    using MakeForward = std::function<std::unique_ptr<Forward>(const conformance::CutModel&, const ForwardOptions&)>;

    // `setup` outlives this object. `warn` takes a sentence.
    Checker(const Setup& setup, MakeForward make, std::function<void(const std::string&)> warn);

    uint32_t layers() const { return model_.config.num_hidden_layers; } // the number of layers that are compared

    // Throws Error when logits are wrong, and LoadStopped on Ctrl-C. Warns of errors larger than any correct device has shown.
    Check operator()(const KvOptions& kv);

  private:
    conformance::LogitsCheck compare(const KvOptions& kv);

    const Setup& setup_;
    MakeForward make_;
    std::function<void(const std::string&)> warn_;
    conformance::CutModel model_;
    bool fp16_products_;
    std::optional<conformance::LogitsCheck> exact_; // empty before the first check: it is the same for every cache
};

} // namespace tq::bench
