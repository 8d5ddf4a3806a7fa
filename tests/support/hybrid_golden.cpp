#include "tests/support/hybrid_golden.h"
#include <algorithm>
#include <cstring>
#include <fstream>
#include <numeric>

namespace tq {
namespace {

// Appends the numbers of lists within lists.
void flatten(std::vector<float>& to, const nlohmann::json& from) {
    if (from.is_array())
        for (const nlohmann::json& one : from) flatten(to, one);
    else
        to.push_back(from);
}

// The files have six decimals, which are few of sums that nearly cancel.
void check_near(std::span<const float> is, const nlohmann::json& wanted, double limit) {
    std::vector<float> flat;
    flatten(flat, wanted);
    const double decimals = 1e-6 * std::sqrt(double(flat.size()));
    CHECK(relative_error(is, flat) * norm(flat) <= limit * norm(flat) + decimals);
}

// The sums of each layer's state after the prompt, in slot 0.
void check_states(const HybridGolden& golden, const Cache& cache, double limit) {
    const Config& c = golden.model.config;
    const Recurrent& r = *c.recurrent;
    // Directories' heads are grouped, but their golden states have the order of the architecture's GGUF files.
    const bool tiled = c.architecture->tiled_heads && !r.tiled_heads;
    const uint32_t ratio = r.value_heads / r.key_heads;
    const SavedSlot saved = cache.save_slot(0);
    REQUIRE(saved.state.size() == c.state_bytes());
    const std::byte* at = saved.state.data();
    for (uint32_t layer = 0; layer < c.num_hidden_layers; layer++) {
        CAPTURE(layer);
        const nlohmann::json& wanted = golden.json.at("state").at(layer);
        REQUIRE(wanted.is_null() == !c.is_recurrent(layer));
        if (!c.is_recurrent(layer)) continue;
        std::vector<float> state(r.state_bytes() / 4);
        std::memcpy(state.data(), at, r.state_bytes());
        at += r.state_bytes();
        std::vector<float> norms(r.value_heads), over_keys(r.value_size()), over_values(r.value_size()), conv_sums, conv_first;
        for (uint32_t head = 0; head < r.value_heads; head++) {
            const std::span m = std::span(state).subspan(size_t(head) * r.head_dim * r.head_dim, size_t(r.head_dim) * r.head_dim);
            const uint32_t there = tiled ? head % ratio * r.key_heads + head / ratio : head;
            norms[there] = float(norm(m));
            for (uint32_t i = 0; i < m.size(); i++) {
                over_keys[there * r.head_dim + i % r.head_dim] += m[i];
                over_values[there * r.head_dim + i / r.head_dim] += m[i];
            }
        }
        for (uint32_t t = 0; t + 1 < r.conv_kernel; t++) {
            const std::span row = std::span(state).subspan(r.matrix_floats() + t * r.channels(), r.channels());
            conv_sums.push_back(std::accumulate(row.begin(), row.end(), 0.0f));
            conv_first.insert(conv_first.end(), row.begin(), row.begin() + 8);
        }
        check_near(norms, wanted.at("norm"), limit);
        check_near(over_keys, wanted.at("sum_over_keys"), limit);
        check_near(over_values, wanted.at("sum_over_values"), limit);
        check_near(conv_sums, wanted.at("conv_sums"), limit);
        check_near(conv_first, wanted.at("conv_first8"), limit);
    }
}

} // namespace

std::vector<std::filesystem::path> hybrid_golden_files() {
    const auto folder = larger_set("qwen35");
    if (!folder) return {};
    std::vector<std::filesystem::path> files;
    for (const char* name :
         {"q35-tied-f32", "q35-tied-f16", "q35-tied-q8_0", "q35-tied-ollama-q8_0", "q35-r3-q8_0", "q35-smallnorm-f32",
          "q35-untied8-f16", "q35-untied8-q8_0", "q35-k-q4_k_m", "q35-mtp-f16", "q35-mtp-q8_0", "q35moe-8x3-f16",
          "q35moe-8x3-q8_0", "q35moe-fused-q8_0", "q3next-8x3-f16", "q3next-8x3-q8_0", "q3next-legacy-q8_0"})
        files.push_back(*folder / (std::string(name) + ".gguf"));
    for (const char* directory : {"q35-hf", "q35moe-hf", "q3next-hf"}) files.push_back(*folder / directory);
    return files;
}

HybridGolden load_hybrid_golden(const std::filesystem::path& path, bool mtp) {
    HybridGolden out{load_golden(path, "expected.json", mtp), {}};
    std::ifstream(std::filesystem::is_directory(path) ? path / "expected.json"
                                                      : std::filesystem::path(path).replace_extension(".json")) >>
        out.json;
    return out;
}

void check_hybrid_golden(const HybridGolden& golden, Forward& forward, double limit) {
    CAPTURE(golden.model.name);
    const std::span<const uint32_t> prompt = golden.model.prompt_ids;
    for (const uint32_t step : {uint32_t(prompt.size()), 7u, 1u}) {
        CAPTURE(step);
        forward.truncate(0);
        std::span<const float> logits;
        for (size_t at = 0; at < prompt.size(); at += step)
            logits = forward.run(prompt.subspan(at, std::min<size_t>(step, prompt.size() - at)));
        CHECK(relative_error(logits, golden.model.logits_last) <= limit);
        check_states(golden, forward.cache(), limit);
        const std::vector<uint32_t> more = golden.json.at("continuation_ids");
        for (size_t i = 0; i < more.size(); i++) {
            CAPTURE(i);
            check_near(forward.run({&more[i], 1}), golden.json.at("continuation_logits").at(i), limit);
        }
    }
    forward.truncate(0);
    std::span<const uint32_t> next = golden.model.greedy_prompt_ids;
    for (const uint32_t& id : golden.model.greedy_ids) {
        const std::span<const float> logits = forward.run(next);
        CAPTURE(&id - golden.model.greedy_ids.data());
        CHECK(uint32_t(std::ranges::max_element(logits) - logits.begin()) == id);
        next = {&id, 1};
    }
}

std::vector<std::filesystem::path> mtp_golden_files() {
    const auto folder = larger_set("qwen35");
    if (!folder) return {};
    std::vector<std::filesystem::path> files;
    for (const char* name : {"q35-mtp-f16.gguf", "q35-mtp-q8_0.gguf", "q35moe-fused-q8_0.gguf", "q35-hf"})
        files.push_back(*folder / name);
    return files;
}

void check_mtp_golden(const HybridGolden& golden, Forward& forward, double limit) {
    CAPTURE(golden.model.name);
    REQUIRE(forward.drafts());
    const nlohmann::json& mtp = golden.json.at("mtp");
    const std::span<const uint32_t> prompt = golden.model.prompt_ids, before = prompt.first(prompt.size() - 1);
    const uint32_t last = prompt.back(), second = mtp.at("second_id");
    for (const uint32_t step : {uint32_t(before.size()), 7u, 1u}) {
        CAPTURE(step);
        forward.truncate(0);
        for (size_t at = 0; at < before.size(); at += step)
            forward.run(before.subspan(at, std::min<size_t>(step, before.size() - at)));
        for (int again = 0; again < 2; again++) { // a draft leaves nothing behind
            std::vector<std::vector<float>> logits;
            const DraftStart start{0, last};
            const auto ids =
                forward.draft(std::span(&start, 1), 2, DraftIds::all, [&](size_t, uint32_t, std::span<const float> values) {
                    logits.emplace_back(values.begin(), values.end());
                });
            REQUIRE(logits.size() == 2);
            CHECK(ids[0][0] == second);
            check_near(logits[0], mtp.at("draft_last"), limit);
            check_near(logits[1], mtp.at("second"), limit);
        }
        CHECK(relative_error(forward.run({&last, 1}), golden.model.logits_last) <= limit);
    }
    forward.truncate(0);
    for (size_t i = 0; i + 1 < prompt.size(); i++) {
        forward.run(prompt.subspan(i, 1));
        const DraftStart start{0, prompt[i + 1]};
        forward.draft(std::span(&start, 1), 1, DraftIds::all, [&](size_t, uint32_t, std::span<const float> values) {
            const double mean = std::accumulate(values.begin(), values.end(), 0.0) / double(values.size());
            const double size = norm(values) / std::sqrt(double(values.size()));
            CAPTURE(i);
            CHECK(std::fabs(mean - mtp.at("draft_mean").at(i).get<double>()) <= limit * size + 1e-6);
        });
    }
}

} // namespace tq
