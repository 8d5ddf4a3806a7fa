// A small model, and conversations that are run on two caches and compared bit for bit.
#pragma once
#include "model/files/formats/model_file.h"
#include "model/forward.h"
#include "model/weights/weights.h"
#include "tests/support/random_model.h"
#include "tests/support/temporary_file.h"
#include <doctest/doctest.h>
#include <functional>
#include <random>

namespace tq {

constexpr uint32_t small_context = 101;

// Two layers, eight query heads on four kv heads; or test::small_config() of another architecture.
struct SmallModel {
    test::TemporaryFile path;
    Config config;
    std::unique_ptr<ModelFile> file;
    Weights weights;

    SmallModel();
    explicit SmallModel(const Config& shape);
};

// All kinds of storage: words alone, one scale, four, a scale for each group of 32, and layers that differ.
std::vector<KvOptions> storage_types();

// The same, and a window with codes; a window is not part of what is saved and repeated.
std::vector<KvOptions> storage_types_and_window();

ForwardOptions small_options(const KvOptions& kv);

std::vector<uint32_t> random_ids(std::mt19937& random, uint32_t count);

// Runs the same tokens on both and compares the logits bit for bit.
void check_same(Forward& a, Forward& b, std::span<const uint32_t> ids);

// `make`: makes a Forward with the given options. Runs blocks of uneven sizes, from one token to several batches, across a page,
// on two caches. One of them is truncated again and again: the logits are the same.
void check_cuts(const std::vector<KvOptions>& all_types,
                const std::function<std::unique_ptr<Forward>(const ForwardOptions&)>& make);

// `make`: makes a Forward with the given options. What is stored is repeated vector by vector, across pages; a serial run, and
// truncation, go on after that.
void check_repeat(const std::function<std::unique_ptr<Forward>(const ForwardOptions&)>& make);

} // namespace tq
