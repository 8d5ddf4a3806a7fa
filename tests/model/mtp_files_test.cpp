// Files with a head for multi-token prediction: it is loaded if it is asked for, checked, and counted.
#include "base/error.h"
#include "model/cpu/forward.h"
#include "model/prefix/owner.h"
#include "model/stages/split_forward.h"
#include "model/weights/synthetic/synthetic.h"
#include "tests/support/hybrids.h"
#include "tests/support/text.h"
#include <array>

using namespace tq;
using namespace tq::test;

namespace {

template <class Do> std::string error_of(const Do& act) {
    try {
        act();
        return "";
    } catch (const Error& e) {
        return e.what();
    }
}

// The error of reading the weights after a change of the tensor of this name.
std::string error_after(std::string_view name, const std::function<void(std::vector<FileTensor>&, size_t)>& change) {
    const Hybrid model("qwen3_5", GgmlType::Q8_0, {});
    std::vector<FileTensor>& tensors = model.file->mutable_tensors();
    const auto found = std::ranges::find(tensors, name, &FileTensor::name);
    REQUIRE(found != tensors.end());
    change(tensors, size_t(found - tensors.begin()));
    CHECK(error_of([&] { read_weights(*model.file, read_config(*model.file)); }).empty()); // nobody asks for it
    return error_of([&] { read_weights(*model.file, model.config); });
}

} // namespace

TEST_CASE("a head for multi-token prediction is loaded if it is asked for") {
    for (const char* type : hybrid_types) {
        const Hybrid model(type, GgmlType::Q8_0, {});
        CHECK(model.config.mtp);
        CHECK(model.config.num_hidden_layers == 3);
        REQUIRE(model.weights.mtp);
        CHECK(model.weights.mtp->eh_proj.cols == 2 * model.config.hidden_size);
        CHECK(model.weights.mtp->layer.attn_q.rows == model.config.q_rows());
        CHECK(model.weights.mtp->norm);
        const Config without = read_config(*model.file);
        CHECK_FALSE(without.mtp);
        const Weights weights = read_weights(*model.file, without);
        CHECK_FALSE(weights.mtp);
        CHECK(weights.bytes() < model.weights.bytes());
        const KvOptions kv{KvType::tq4, KvType::f16};
        const ForwardOptions options{.kv = kv, .context_size = 512};
        const MemoryPlan with = plan_cpu_memory(model.config, model.weights, options),
                         less = plan_cpu_memory(without, weights, options);
        CHECK(with.weights - less.weights == model.weights.bytes() - weights.bytes());
        CHECK(with.kv_cache > less.kv_cache);
        CHECK(with.scratch > less.scratch);
        CHECK(page_layout(model.config, kv).layers() == 4);
        CHECK(page_layout(model.config, kv).bytes(256) ==
              page_layout(without, kv).bytes(256) * 2); // one layer of three has attention
        CHECK(kv_bytes_per_token(model.config, kv) == 2 * kv_bytes_per_token(without, kv));
        CHECK(model.config.state_bytes() == without.state_bytes() + 4 * model.config.hidden_size);
    }
}

TEST_CASE("a head for multi-token prediction that cannot be run is refused by name") {
    const Hybrid none("qwen3_5");
    CHECK(contains(error_of([&] { read_config(*none.file, true); }), "it has no head for multi-token prediction"));
    const Hybrid model("qwen3_5", GgmlType::Q8_0, {});
    model.file->mutable_metadata()[model.config.architecture->key("nextn_predict_layers")] = uint64_t(2);
    CHECK(contains(error_of([&] { read_config(*model.file, true); }), "nextn_predict_layers' is 2; tq-run runs one head"));
    const auto erase = [](std::vector<FileTensor>& tensors, size_t i) { tensors.erase(tensors.begin() + ptrdiff_t(i)); };
    for (const char* name :
         {"nextn.eh_proj.weight", "nextn.enorm.weight", "nextn.hnorm.weight", "attn_k.weight", "ffn_up.weight"})
        CHECK(contains(error_after(fmt::format("blk.3.{}", name), erase), fmt::format("tensor 'blk.3.{}' is missing", name)));
    CHECK(error_after("blk.3.nextn.shared_head_norm.weight", erase).empty()); // the model's own serves
    const auto narrow = [](std::vector<FileTensor>& tensors, size_t i) { tensors[i].ne[0] /= 2; };
    CHECK(contains(error_after("blk.3.nextn.eh_proj.weight", narrow),
                   "'blk.3.nextn.eh_proj.weight' has shape [64, 64, 1, 1], not"));
    const auto rename = [](std::vector<FileTensor>& tensors, size_t i) { tensors[i].name = "blk.3.nextn.embed_tokens.weight"; };
    CHECK(contains(error_after("blk.3.nextn.enorm.weight", rename), "is missing"));
    const auto foreign = [](std::vector<FileTensor>& tensors, size_t i) {
        tensors.push_back(tensors[i]);
        tensors.back().name = "blk.3.nextn.other.weight";
    };
    CHECK(contains(error_after("blk.3.nextn.enorm.weight", foreign), "'blk.3.nextn.other.weight' does not belong"));
}

TEST_CASE("a head for multi-token prediction is not divided among devices") {
    const Hybrid model("qwen3_5", GgmlType::Q8_0, {});
    const Split split({0, 1, 1, 0, 1, 1, 0}, 2);
    const std::array<MakeStage, 2> none;
    CHECK(contains(error_of([&] { make_split_forward(model.config, model.weights, {.context_size = 16}, split, none); }),
                   "runs where the whole model is on one device"));
}

TEST_CASE("synthetic shapes have a head for multi-token prediction by name") {
    const Model model = make_synthetic(parse_synthetic("qwen3.5-0.8b+mtp:q8_0", 4));
    CHECK(model.config.mtp);
    CHECK(model.config.num_hidden_layers == 4);
    REQUIRE(model.weights.mtp);
    CHECK(model.weights.mtp->eh_proj.rows == 1024);
    CHECK_FALSE(make_synthetic(parse_synthetic("qwen3.5-0.8b", 4)).config.mtp);
    CHECK(contains(error_of([] { parse_synthetic("qwen3-8b+mtp"); }), "qwen3-8b has no head for multi-token prediction"));
}

TEST_CASE("parts of a pass hand the states on") {
    PassRows rows;
    const std::array<uint32_t, 4> ids{};
    rows.add(1, 10, ids, 0, true, {8, 12});
    rows.add(2, 20, std::span(ids).first(2), 0, true);
    const auto begins = [&](uint32_t first, uint32_t count) { return rows.part(first, count).rows[0].state.begin; };
    CHECK(begins(0, 2) == 8);
    CHECK(begins(1, 3) == 11);
    CHECK(begins(3, 3) == 12);
    CHECK(begins(4, 2) == UINT32_MAX);
    CHECK(rows.part(1, 5).rows[3].state.begin == UINT32_MAX); // of the other slot
}
