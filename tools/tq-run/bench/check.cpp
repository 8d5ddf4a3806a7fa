#include "tools/tq-run/bench/check.h"
#include "base/interrupt.h"
#include "model/gpu/tuning_file.h"
#include "model/load.h"
#include "tools/tq-run/engine/setup.h"

namespace tq::bench {

using conformance::LogitsCheck;

Checker::Checker(const Setup& setup, MakeForward make, std::function<void(const std::string&)> warn)
    : setup_(setup), make_(std::move(make)), warn_(std::move(warn)),
      model_(conformance::cut_model(setup.model.config, setup.model.weights)),
      fp16_products_(setup.device && gpu::tuning_for(setup.device->capabilities()).rounds_to_fp16()) {}

// Compares the logits of a few layers of the model with the reference's. Above the limit nothing is timed (Error); above what
// correct devices have shown there is a warning.
LogitsCheck Checker::compare(const KvOptions& kv) {
    const auto expected = conformance::expect_logits(model_, kv, fp16_products_, [] { return !interrupted(); });
    if (!expected) throw LoadStopped();
    const auto forward = make_(model_, {.kv = kv, .context_size = conformance::check_tokens});
    const LogitsCheck check = conformance::compare_logits(*forward, *expected, model_);
    const std::string what =
        fmt::format("{} with a cache of {} on {}: the relative error of the logits against the reference is {:.2g}",
                    setup_.model.name, describe(kv), setup_.device_name, check.error);
    if (!check.passed())
        fail("the device computes wrong results, so nothing is timed: {}, and correct devices stay below {:.1g}. tq-run "
             "conformance finds the kernel, tq-run validate the layer; --no-check times it anyway",
             what, check.bounds.limit);
    if (!check.usual())
        warn_(fmt::format(
            "{}; correct devices have shown at most {:.1g}, and more than {:.1g} counts as wrong: tq-run conformance tells more",
            what, check.bounds.usual, check.bounds.limit));
    return check;
}

Check Checker::operator()(const KvOptions& kv) {
    if (!exact_) exact_ = compare({KvType::f32, KvType::f32});
    return {*exact_, conformance::is_exact(kv) ? *exact_ : compare(kv)};
}

} // namespace tq::bench
