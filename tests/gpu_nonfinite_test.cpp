// A value that is not finite never stays silent: the run fails and names the stored vector that shows it first.
#include "base/error.h"
#include "model/cpu/forward.h"
#include "model/formats/gguf.h"
#include "model/gpu/forward.h"
#include "tests/random_model.h"
#include "tests/temporary_file.h"
#include <cstring>
#include <doctest/doctest.h>

using namespace tq;

namespace {

// A small fp32 model whose value projection of layer 1 is scaled by `factor`.
struct LoudModel {
    test::TemporaryFile path;
    Config config = test::small_config();
    std::unique_ptr<ModelFile> file;
    std::vector<std::byte> loud;
    Weights weights;

    explicit LoudModel(float factor) {
        test::write_random_model(path.path(), {config, GgmlType::F32, true, 1, {}});
        file = std::make_unique<ModelFile>(read_gguf(path.path()));
        weights = read_weights(*file, config);
        Tensor& values = weights.layers[1].attn_v;
        loud.assign(values.data.begin(), values.data.end());
        for (size_t at = 0; at < loud.size(); at += 4) {
            float w;
            std::memcpy(&w, &loud[at], 4);
            w *= factor;
            std::memcpy(&loud[at], &w, 4);
        }
        values.data = loud;
    }
};

std::string error_of(Forward& forward) {
    const std::vector<uint32_t> ids{1, 2, 3};
    try {
        forward.run(ids);
    } catch (const Error& error) {
        CHECK(forward.position() == 0);
        return error.what();
    }
    return "no error";
}

} // namespace

TEST_CASE("an overflowing value is reported with its layer, head and position, on the CPU and on the device") {
    Device device;
    for (const KvType type : {KvType::f32, KvType::f16, KvType::tq4, KvType::tq2}) {
        const std::string cache = name(type);
        CAPTURE(cache);
        const LoudModel model(type == KvType::f16 ? 1e8f : 3e38f); // beyond fp16, beyond fp32
        const ForwardOptions options{{type, type}, 16, 0, 0};
        const std::string expected = "the value of layer 1, kv head 0, position 0";
        const std::string on_cpu = error_of(*make_cpu_forward(model.config, model.weights, options));
        CHECK(on_cpu.find(expected) != std::string::npos);
        CHECK(error_of(*make_gpu_forward(device, model.config, model.weights, options)) == on_cpu);
    }
}

TEST_CASE("hidden values whose squares overflow do not become silent zeros") {
    Device device;
    const LoudModel model(1e30f); // finite values, finite attention, but no finite norm of what follows
    const ForwardOptions options{{KvType::f32, KvType::f32}, 16, 0, 0};
    CHECK(error_of(*make_cpu_forward(model.config, model.weights, options)).find("not finite") != std::string::npos);
    CHECK(error_of(*make_gpu_forward(device, model.config, model.weights, options)).find("not finite") != std::string::npos);
}

TEST_CASE("the same model with ordinary weights runs") {
    Device device;
    const LoudModel model(1);
    const ForwardOptions options{{KvType::tq4, KvType::tq4}, 16, 0, 0};
    CHECK(error_of(*make_cpu_forward(model.config, model.weights, options)) == "no error");
    CHECK(error_of(*make_gpu_forward(device, model.config, model.weights, options)) == "no error");
}
