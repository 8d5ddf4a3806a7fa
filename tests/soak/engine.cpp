#include "tests/soak/engine.h"
#include "model/cpu/forward.h"
#include "model/files/formats/gguf.h"
#include "model/gpu/forward.h"
#include <algorithm>

namespace tq::soak {

Engine::Engine(const EngineOptions& options)
    : file_(std::make_unique<ModelFile>(read_gguf(options.model))), config_(read_config(*file_)),
      weights_(read_weights(*file_, config_)) {
    const ForwardOptions forward{.kv = options.kv,
                                 .context_size = context_size,
                                 .slots = slots,
                                 .cache_tokens = pages * page_tokens,
                                 .threads = 2,
                                 .batch_size = block,
                                 .deterministic = options.deterministic};
    if (options.device == "cpu") {
        forward_ = make_cpu_forward(config_, weights_, forward);
    } else {
        device_ = std::make_unique<Device>(options.device);
        forward_ = make_gpu_forward(*device_, config_, weights_, forward);
    }
}

uint32_t most_likely(std::span<const float> logits) { return uint32_t(std::ranges::max_element(logits) - logits.begin()); }

Answers run_serially(Engine& engine, const std::vector<Request>& plan) {
    Forward& forward = engine.forward();
    Answers answers;
    for (const Request& request : plan) {
        forward.truncate(0);
        uint32_t next = most_likely(forward.run(prompt_of(plan, request, answers)));
        Ids& answer = answers[request.number];
        for (answer = {next}; answer.size() < request.answer_ids; answer.push_back(next))
            next = most_likely(forward.run({&next, 1}));
    }
    return answers;
}

} // namespace tq::soak
