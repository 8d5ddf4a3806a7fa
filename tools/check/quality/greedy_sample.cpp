#include "tools/check/quality/greedy_sample.h"
#include "base/ensure.h"
#include "model/forward.h"
#include <algorithm>

namespace tq::quality {

std::optional<GreedySample> greedy_sample(Forward& measured, Forward& reference, std::span<const uint32_t> prompt,
                                          uint32_t tokens, const Tokenizer& tokenizer, uint32_t vocab_size,
                                          const std::function<bool()>& interrupted) {
    GreedySample out{{prompt.begin(), prompt.end()}, {}, {}};
    GenerateOptions options{.max_tokens = tokens};
    options.is_end = [&](uint32_t id) { return tokenizer.is_end_of_generation(id); };
    options.interrupted = interrupted;
    for (Forward* forward : {&reference, &measured}) {
        forward->truncate(0);
        Sampler sampler({.temperature = 0}, unsampled_ids(tokenizer, vocab_size));
        Session session(*forward);
        const Generated generated = session.generate(prompt, sampler, options);
        if (generated.stop == Stop::interrupted) return std::nullopt;
        (forward == &reference ? out.reference : out.measured) = generated.ids;
    }
    out.same = size_t(std::ranges::mismatch(out.reference, out.measured).in1 - out.reference.begin());
    return out;
}

} // namespace tq::quality
