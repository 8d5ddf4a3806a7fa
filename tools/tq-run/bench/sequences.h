// The timing of tests on a Forward that is ready to run: of one sequence, or of several together.
#pragma once
#include "model/forward.h"
#include "runtime/device.h"
#include "runtime/profile.h"
#include "tools/tq-run/bench/arguments.h"
#include <optional>
#include <vector>

namespace tq::bench {

// The comparison, bit for bit, of sequences that run together with the same sequences alone.
struct Company {
    uint32_t prompt, generated; // tokens of each sequence
    uint32_t sequences;         // that were run again alone: the first, the middle and the last; 0: nothing was compared
};

struct Sample {
    uint64_t prompt_ns, generated_ns;

    uint64_t ns() const { return prompt_ns + generated_ns; }
};

// The cost of each kernel in a test, or in its first few tokens; no kernels if the device has no timestamps.
struct Profiled {
    std::vector<ProfileRow> kernels;
    uint32_t tokens;
};

class Sequences {
  public:
    // `forward` outlives this object; its slots and context hold every test.
    Sequences(Forward& forward, uint32_t vocab_size) : forward_(forward), vocab_size_(vocab_size) {}

    // All return nothing after Ctrl-C.

    // Fills the cache to the test's depth and warms up: with the whole test of one sequence, and with the first tokens of
    // several. With `compare` some of several are then run alone in their slots. Throws Error if their logits differ.
    std::optional<Company> begin(const Test& test, bool compare);
    // Runs the test at the depth to which begin() has filled the cache. One sequence samples greedily, on the device if that can;
    // several get random ids, and their logits are computed, as for sampling.
    std::optional<Sample> time(const Test& test);
    // Runs a test of one sequence once more, with each kernel timed.
    Profiled profile(Device& device, const Test& test);

  private:
    using Ids = std::vector<std::vector<uint32_t>>; // of each sequence
    using Logits = std::vector<std::vector<float>>; // of one sequence: after its prompt, and after each generated token
    using Each = std::function<void(uint32_t slot, std::span<const float> logits)>;

    Ids ids_for(const Test& test, uint32_t count) const;
    bool run(std::span<const Span> spans, const Each& each = {});
    bool generate(std::span<const uint32_t> slots, const Ids& ids, uint32_t first, uint32_t count);
    bool sample_greedily(std::span<const uint32_t> ids);
    bool fill(std::span<const uint32_t> slots, const Test& test);
    // Returns the logits of the `kept` slots; nothing after Ctrl-C.
    std::vector<Logits> sample(const Test& part, std::span<const uint32_t> slots, std::span<const uint32_t> kept);
    std::optional<Company> begin_together(const Test& test, bool compare);

    Forward& forward_;
    const uint32_t vocab_size_;
    std::vector<SavedSlot> filled_; // of each slot, at the test's depth
};

} // namespace tq::bench
