// The demo model that ships with the project: PyTorch's logits, and answers about facts from hundreds of tokens before.
#include "model/cpu/forward.h"
#include "model/engine/session.h"
#include "model/gpu/forward.h"
#include "model/model.h"
#include "tests/support/device_kernels.h"
#include "tests/support/golden.h"
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

using namespace tq;

namespace {

const std::filesystem::path folder = std::filesystem::path(TQ_SOURCE_DIR) / "tools" / "demo-model";

std::vector<uint32_t> continue_greedily(Session& session, const Model& model, std::span<const uint32_t> prompt, uint32_t tokens) {
    SamplerOptions options;
    options.temperature = 0;
    Sampler sampler(options, unsampled_ids(model.tokenizer, model.config.vocab_size));
    GenerateOptions generate;
    generate.max_tokens = tokens;
    generate.is_end = [&](uint32_t id) { return model.tokenizer.is_end_of_generation(id); };
    return session.generate(prompt, sampler, generate).ids;
}

void check_reference(Forward& forward, const Model& model, double limit) {
    nlohmann::json reference;
    std::ifstream(folder / "reference.json") >> reference;
    for (const auto& expected : reference.at("cases")) {
        const std::string prompt = expected.at("prompt");
        CAPTURE(prompt);
        const std::vector<uint32_t> ids = expected.at("prompt_ids"), greedy_ids = expected.at("greedy_ids");
        const std::vector<float> logits = expected.at("last_logits");
        CHECK(model.tokenizer.encode(prompt) == ids);
        forward.truncate(0);
        CHECK(relative_error(forward.run(ids), logits) <= limit);
        forward.truncate(0);
        Session session(forward);
        const auto answer = continue_greedily(session, model, ids, uint32_t(greedy_ids.size()));
        CHECK(answer == std::vector(greedy_ids.begin(), greedy_ids.begin() + std::ptrdiff_t(answer.size())));
        CHECK(!answer.empty());
    }
}

// Facts, some 500 tokens of unrelated sentences, and a question.
std::vector<uint32_t> long_prompt(const Model& model, const std::string& question) {
    std::string story =
        "My name is Mira. The code of the silver kettle is 4821. The code of the old violin is 3075. Tom lives near the "
        "river.";
    const char* fillers[] = {" The baker walked to the market.", " It was a rainy day at the harbor.",
                             " A small cat slept under the table.", " Then Paul went home and read a book.",
                             " The goat ran from the farm to the mill."};
    while (model.tokenizer.encode(story).size() < 540) story += fillers[story.size() % 5];
    const nlohmann::ordered_json messages = {{{"role", "user"}, {"content", story}},
                                             {{"role", "assistant"}, {"content", "Okay, I will remember that."}},
                                             {{"role", "user"}, {"content", question}}};
    return model.tokenizer.encode(render_chat(messages, nullptr, {model.chat, true, false}));
}

} // namespace

TEST_CASE("the demo model gives PyTorch's logits on the CPU and on the device") {
    const Model model = load_model(folder / "demo-q8_0.gguf");
    Device device;
    const ForwardOptions options{.kv = {KvType::f32, KvType::f32}, .context_size = 512};
    check_reference(*make_cpu_forward(model.config, model.weights, options), model, exact_limit);
    for (const DeviceKernels& kernels : kernels_to_check(device)) {
        CAPTURE(kernels.name());
        check_reference(*kernels.make(device, model.config, model.weights, options), model, kernels.limit());
    }
}

TEST_CASE("it answers questions about what it was told 500 tokens earlier, with f16 and with tq4 caches") {
    const Model model = load_model(folder / "demo-q8_0.gguf");
    Device device;
    for (const KvType type : {KvType::f16, KvType::tq4}) {
        const std::string cache = name(type);
        CAPTURE(cache);
        const auto forward = make_gpu_forward(device, model.config, model.weights, {.kv = {type, type}, .context_size = 1024});
        Session session(*forward); // the common part of the questions is run once
        for (const auto& [question, answer] : {std::pair{"What is the code of the silver kettle?", "4821"},
                                               {"What is the code of the old violin?", "3075"},
                                               {"What is my name?", "Mira"},
                                               {"Where does Tom live?", "river"}}) {
            const std::string text = model.tokenizer.decode(continue_greedily(session, model, long_prompt(model, question), 40));
            CAPTURE(text);
            CHECK(text.find(answer) != std::string::npos);
        }
    }
}

namespace {

// Both get the tokens that the CPU finds most probable. The device finds the same ones, or ones so close that the error allowed
// at every step, ||logits - the CPU's|| / ||the CPU's||, explains it.
void check_continuation(Device& device, const DeviceKernels& kernels, const Model& model, KvType type, uint32_t tokens,
                        double limit) {
    const std::string cache = name(type);
    CAPTURE(cache);
    CAPTURE(kernels.name());
    const ForwardOptions options{.kv = {type, type}, .context_size = 512};
    const auto on_cpu = make_cpu_forward(model.config, model.weights, options),
               on_device = kernels.make(device, model.config, model.weights, options);
    std::vector<uint32_t> ids = model.tokenizer.encode("Once upon a time there was a fox who");
    const auto best = [](std::span<const float> logits) { return uint32_t(std::ranges::max_element(logits) - logits.begin()); };
    uint32_t equal = 0;
    for (uint32_t i = 0; i < tokens; i++) {
        CAPTURE(i);
        const auto want = on_cpu->run(ids), got = on_device->run(ids);
        CHECK(relative_error(got, want) <= limit);
        const uint32_t id = best(want), other = best(got);
        equal += id == other;
        CHECK(want[id] - want[other] <= 2 * limit * norm(want));
        ids = {id};
    }
    MESSAGE(kernels.name() << ", " << cache << ": " << equal << " of " << tokens << " tokens are the CPU's");
    CHECK(equal >= tokens - 2);
}

} // namespace

TEST_CASE("a greedy continuation of 200 tokens is the CPU's") {
    const Model model = load_model(folder / "demo-q8_0.gguf");
    Device device;
    for (const DeviceKernels& kernels : kernels_to_check(device))
        check_continuation(device, kernels, model, KvType::f32, 50, kernels.limit());
    check_continuation(device, exact_kernels(device), model, KvType::tq4, 200, 0.05); // halves move values to other codes
}
