// Products with experts on the CPU path: against sums in double, on every instruction set, and with the same bits in any company.
#include "model/cpu/forward.h"
#include "model/cpu/kernels.h"
#include "model/files/formats/gguf.h"
#include "tests/support/cpu_targets.h"
#include "tests/support/golden.h"
#include "tests/support/random_matrix.h"
#include "tests/support/spans.h"

using namespace tq;
using conformance::Random;

namespace {

constexpr uint32_t count = 6, per_token = 3, hidden = 256, ffn = 256;
constexpr double products_limit = 3e-6; // of relative errors of sums of 256 terms, and of products of two

// A stack of random experts, and their values.
struct Stack {
    test::Matrix matrix;
    const Tensor& tensor = matrix.tensor;
    std::vector<float> values;

    Stack(GgmlType type, uint32_t rows, uint32_t cols, Random& random)
        : matrix(type, rows * count, cols, random), values(to_floats(matrix.tensor)) {}
    Stack(const Stack&) = delete;

    double dot(uint32_t expert, uint32_t row, const float* x) const {
        const uint32_t rows = tensor.rows / count;
        double sum = 0;
        for (uint32_t c = 0; c < tensor.cols; c++) sum += double(values[(size_t(expert) * rows + row) * tensor.cols + c]) * x[c];
        return sum;
    }
};

// Tokens go to random experts; `one`: all have experts 1, 2 and 0, in this order.
host::Routes random_routes(uint32_t tokens, bool one, Random& random) {
    host::Routes routes;
    for (uint32_t t = 0; t < tokens; t++) {
        std::vector<uint32_t> order{1, 2, 0, 3, 4, 5};
        for (uint32_t i = 0; !one && i < per_token; i++) std::swap(order[i], order[i + random.bits() % (count - i)]);
        routes.ids.insert(routes.ids.end(), order.begin(), order.begin() + per_token);
        for (uint32_t i = 0; i < per_token; i++) routes.weights.push_back(0.6f / float(i + 1));
    }
    return routes;
}

void check_products(GgmlType type, uint32_t tokens, bool one, bool separate) {
    ThreadPool pool(2);
    Random random{tokens};
    const Stack gate(type, ffn, hidden, random), up(type, ffn, hidden, random), down(type, hidden, ffn, random);
    const host::Routes routes = random_routes(tokens, one, random);
    const cpu::Experts experts{count, per_token, routes};
    const std::vector<float> x = random.normals(size_t(tokens) * hidden), before = random.normals(x.size());
    std::vector<float> y(routes.ids.size() * ffn), h = before;
    cpu::gated_matmul(pool, y, gate.tensor, up.tensor, x, experts, separate);
    cpu::matmul_add(pool, h, down.tensor, y, experts, separate);
    std::vector<float> want(y.size());
    std::vector<double> sums(before.begin(), before.end());
    for (size_t pair = 0; pair < routes.ids.size(); pair++) {
        const uint32_t expert = routes.ids[pair];
        for (uint32_t r = 0; r < ffn; r++) {
            const double g = gate.dot(expert, r, &x[pair / per_token * hidden]),
                         u = up.dot(expert, r, &x[pair / per_token * hidden]);
            want[pair * ffn + r] = float(g / (1 + std::exp(-g)) * u);
        }
        for (uint32_t r = 0; r < hidden; r++)
            sums[pair / per_token * hidden + r] += double(routes.weights[pair]) * down.dot(expert, r, &y[pair * ffn]);
    }
    CHECK(relative_error(y, want) < products_limit);
    CHECK(relative_error(h, std::vector<float>(sums.begin(), sums.end())) < products_limit);

    for (uint32_t t = 0; t < tokens; t++) { // the bits that each has alone
        host::Routes own{{&routes.ids[t * per_token], &routes.ids[t * per_token] + per_token},
                         {&routes.weights[t * per_token], &routes.weights[t * per_token] + per_token}};
        const cpu::Experts alone{count, per_token, own};
        std::vector<float> of_token(per_token * ffn), sum(&before[t * hidden], &before[t * hidden] + hidden);
        cpu::gated_matmul(pool, of_token, gate.tensor, up.tensor, std::span(x).subspan(t * hidden, hidden), alone, separate);
        cpu::matmul_add(pool, sum, down.tensor, of_token, alone, separate);
        REQUIRE(std::equal(of_token.begin(), of_token.end(), &y[t * per_token * ffn]));
        REQUIRE(std::equal(sum.begin(), sum.end(), &h[t * hidden]));
    }
}

// A mixture whose rows are long enough for integer products, or one whose rows are not.
std::unique_ptr<Forward> make_mixture(const ForwardOptions& options, bool wide) {
    struct Mixture {
        test::TemporaryFile path;
        Config config = test::small_config(*find_model_type("qwen3_moe"));
        std::unique_ptr<ModelFile> file;
        Weights weights;

        explicit Mixture(bool wide) {
            config.num_attention_heads = 8;
            config.num_key_value_heads = 4;
            if (wide) {
                config.hidden_size = config.moe_intermediate_size = 256;
                config.intermediate_size = 768;
            }
            test::write_random_model(path.path(), {config, wide ? GgmlType::Q4_K : GgmlType::Q8_0, true, 3, {}});
            file = std::make_unique<ModelFile>(read_gguf(path.path()));
            weights = read_weights(*file, config);
        }
    };
    static const Mixture small(false), large(true);
    const Mixture& model = wide ? large : small;
    return make_cpu_forward(model.config, model.weights, options);
}

} // namespace

TEST_CASE("products with experts, in any company and on every instruction set") {
    test::on_each_target([] {
        for (const GgmlType type : {GgmlType::F32, GgmlType::Q8_0, GgmlType::Q4_0})
            for (const bool separate : {true, false})
                for (const uint32_t tokens : {1u, 3u, 20u}) {
                    CAPTURE(tokens);
                    CAPTURE(separate);
                    check_products(type, tokens, false, separate);
                    check_products(type, tokens, true, separate);
                }
    });
}

TEST_CASE("products with experts in every weight format") {
    test::on_each_target([] {
        for (const GgmlType type : weight_formats)
            for (const bool separate : {true, false})
                for (const uint32_t tokens : {1u, 12u}) {
                    CAPTURE(type_name(type));
                    CAPTURE(separate);
                    CAPTURE(tokens);
                    check_products(type, tokens, false, separate);
                }
    });
}

TEST_CASE("sequences of a mixture have the logits that each has alone") {
    for (const bool wide : {false, true}) {
        const MakeForward make = [&](const ForwardOptions& options) { return make_mixture(options, wide); };
        check_company(make, {all_types()[0], all_types()[3]});
        check_deterministic(make, {all_types()[0]});
    }
}

TEST_CASE("a prompt of a mixture stores the same keys and values wherever its blocks end") {
    for (const bool wide : {false, true}) {
        ForwardOptions options = options_of({KvType::tq4, KvType::tq4}, 2);
        options.batch_size = 300;
        const auto forward = make_mixture(options, wide);
        std::mt19937 random(5);
        const Ids ids = random_ids(random, 290);
        run_one(*forward, 0, ids);
        for (const auto& [first, end] : {std::pair{0, 40}, {40, 170}, {170, 290}})
            run_one(*forward, 1, Ids(ids.begin() + first, ids.begin() + end));
        CHECK(same_stored(forward->cache(), 0, forward->cache(), 1));
    }
}
