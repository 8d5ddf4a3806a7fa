// A value that is not finite is always reported: the run fails and names the first stored vector that shows it.
#include "base/error.h"
#include "model/cpu/forward.h"
#include "model/files/formats/gguf.h"
#include "model/gpu/forward.h"
#include "tests/support/random_model.h"
#include "tests/support/temporary_file.h"
#include <cstring>
#include <doctest/doctest.h>
#include <functional>
#include <limits>

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
        const ForwardOptions options{.kv = {type, type}, .context_size = 16};
        const std::string expected = "the value of layer 1, kv head 0, position 0";
        const std::string on_cpu = error_of(*make_cpu_forward(model.config, model.weights, options));
        CHECK(on_cpu.find(expected) != std::string::npos);
        CHECK(error_of(*make_gpu_forward(device, model.config, model.weights, options)) == on_cpu);
    }
}

TEST_CASE("hidden values whose squares overflow do not become silent zeros") {
    Device device;
    const LoudModel model(1e30f); // finite values, finite attention, but the following norm is not finite
    const ForwardOptions options{.kv = {KvType::f32, KvType::f32}, .context_size = 16};
    CHECK(error_of(*make_cpu_forward(model.config, model.weights, options)).find("not finite") != std::string::npos);
    CHECK(error_of(*make_gpu_forward(device, model.config, model.weights, options)).find("not finite") != std::string::npos);
}

TEST_CASE("one weight that is damaged is refused on the CPU and on the device alike") {
    Device device;
    const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    struct Damage {
        const char* what;
        std::function<Tensor&(Weights&)> tensor;
        float value;
        const char* said;
    };
    const auto output_norm = [](Weights& w) -> Tensor& { return w.output_norm; };
    const auto ffn_down = [](Weights& w) -> Tensor& { return w.layers[0].ffn_down; };
    for (const Damage& d : {Damage{"3e38 in a norm", output_norm, 3e38f, "'output_norm.weight' has the value 3e+38 at index 5"},
                            Damage{"-1e5 in a norm", output_norm, -1e5f, "'output_norm.weight' has the value -1e+05 at index 5"},
                            Damage{"infinity in a norm", output_norm, infinity, "in row 0 that is NaN or infinite"},
                            Damage{"NaN in a norm", output_norm, nan, "in row 0 that is NaN or infinite"},
                            Damage{"3e38 in a matrix", ffn_down, 3e38f, "not finite"},
                            Damage{"infinity in a matrix", ffn_down, infinity, "in row 0 that is NaN or infinite"},
                            Damage{"NaN in a matrix", ffn_down, nan, "in row 0 that is NaN or infinite"}}) {
        CAPTURE(d.what);
        LoudModel model(1);
        Tensor& tensor = d.tensor(model.weights);
        std::vector<std::byte> bytes(tensor.data.begin(), tensor.data.end());
        std::memcpy(&bytes[5 * 4], &d.value, 4);
        tensor.data = bytes;
        const ForwardOptions options{.kv = {KvType::tq4, KvType::tq4}, .context_size = 16};
        const auto refusal = [&](auto make) -> std::string {
            try {
                return error_of(*make());
            } catch (const Error& error) {
                return error.what();
            }
        };
        const std::string on_cpu = refusal([&] { return make_cpu_forward(model.config, model.weights, options); });
        const std::string on_device = refusal([&] { return make_gpu_forward(device, model.config, model.weights, options); });
        CHECK_MESSAGE(on_cpu.find(d.said) != std::string::npos, on_cpu);
        CHECK_MESSAGE(on_device.find(d.said) != std::string::npos, on_device);
    }
}

TEST_CASE("the same model with ordinary weights runs") {
    Device device;
    const LoudModel model(1);
    const ForwardOptions options{.kv = {KvType::tq4, KvType::tq4}, .context_size = 16};
    CHECK(error_of(*make_cpu_forward(model.config, model.weights, options)) == "no error");
    CHECK(error_of(*make_gpu_forward(device, model.config, model.weights, options)) == "no error");
}
