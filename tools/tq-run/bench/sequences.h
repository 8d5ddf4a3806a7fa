// Several sequences on one Forward: their prompts, then tokens of all of them together, checked and timed.
#pragma once
#include "model/forward.h"
#include "tools/tq-run/bench/arguments.h"
#include <optional>
#include <vector>

namespace tq::bench {

// What was compared bit for bit between sequences that run together and the same sequences alone.
struct Company {
    uint32_t prompt, generated; // tokens of each sequence
    uint32_t sequences;         // that were run again alone: the first, the middle and the last
};

struct BatchedTime {
    uint64_t prompt_ns, generated_ns;
};

class Sequences {
  public:
    // `forward` outlives this object; its slots and context hold every test.
    Sequences(Forward& forward, uint32_t vocab_size) : forward_(forward), vocab_size_(vocab_size) {}

    // Both return nothing after Ctrl-C.

    // Fills the cache to the test's depth, runs the first tokens of all of its sequences, and samples greedily; then does the
    // same with some of the sequences alone in their slots. Throws Error where their logits differ. Without `compare` it only
    // warms up.
    std::optional<Company> check(const BatchedTest& test, bool compare);
    // Runs the test at the depth to which check() has filled the cache. The generated tokens are random ids; their logits are
    // computed, as for sampling.
    std::optional<BatchedTime> time(const BatchedTest& test);

  private:
    using Ids = std::vector<std::vector<uint32_t>>; // of each sequence
    using Logits = std::vector<std::vector<float>>; // of one sequence: after its prompt, and after each generated token
    using Each = std::function<void(uint32_t slot, std::span<const float> logits)>;

    Ids ids_for(const BatchedTest& test, uint32_t count) const;
    bool run(std::span<const Span> spans, const Each& each = {});
    bool fill(std::span<const uint32_t> slots, uint32_t depth);
    // Returns the logits of those of the slots that are kept; nothing after Ctrl-C.
    std::vector<Logits> sample(const BatchedTest& part, std::span<const uint32_t> slots, std::span<const uint32_t> kept);

    Forward& forward_;
    const uint32_t vocab_size_;
};

} // namespace tq::bench
