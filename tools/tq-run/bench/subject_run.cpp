#include "tools/tq-run/bench/subject_run.h"
#include "base/interrupt.h"
#include "model/cpu/forward.h"
#include "model/files/calibration.h"
#include "model/gpu/forward.h"
#include "model/gpu/tuning_file.h"
#include "model/load.h"
#include "tools/tq-run/engine_conditioning.h"
#include "tools/tq-run/plan.h"
#include "tools/tq-run/progress.h"
#include <chrono>
#include <new>
#include <thread>

namespace tq::bench {

SubjectRun::SubjectRun(const Arguments& arguments, Subject& subject, Console& console, Schedule& schedule)
    : arguments_(arguments), subject_(subject), setup_(subject.setup), console_(console), schedule_(schedule),
      checker_(
          setup_,
          [this](const conformance::CutModel& model, const ForwardOptions& options) {
              return make_forward(model.config, model.weights, options);
          },
          [this](const std::string& what) { warn(what); }) {}

void SubjectRun::report(const std::string& what) {
    if (arguments_.console.verbose || arguments_.progress)
        write_error(fmt::format("tq-run bench: {}, {}: {}\n", subject_.label, setup_.device_name, what));
    else
        console_.status(fmt::format("{}, {}", what, subject_.label));
}

void SubjectRun::warn(const std::string& what) {
    console_.clear_status();
    write_error(fmt::format("tq-run: {}\n", what));
}

void SubjectRun::complain(const std::string& what) {
    warn(what);
    good_ = false;
}

void SubjectRun::wait() {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(arguments_.delay_seconds);
    if (arguments_.delay_seconds > 0) report(fmt::format("{}: waiting for {} s", schedule_.text(), arguments_.delay_seconds));
    while (!interrupted() && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

std::unique_ptr<Forward> SubjectRun::make_forward(const Config& config, const Weights& weights, ForwardOptions options) {
    options.memory_bytes = setup_.options.memory_bytes;
    TransferStatus status(console_);
    const auto on_load = [&](uint64_t done, uint64_t total) {
        status.update(fmt::format("loading {}", setup_.model.name), done, total, done);
        return !interrupted();
    };
    Placing placing = setup_.placing();
    if (&weights != &setup_.model.weights) placing.ranks = nullptr; // a part of the model, for a check of this rank's device
    return placing.open(config, weights, options, on_load, {});
}

// Throws Error when the logits are wrong; returns nothing where the check is turned off.
std::optional<Check> SubjectRun::check(const KvOptions& kv) {
    if (arguments_.unchecked) return std::nullopt;
    report(fmt::format("checking {} of {} layers", checker_.layers(), setup_.model.config.num_hidden_layers));
    return checker_(kv);
}

uint32_t SubjectRun::usual_batch() const {
    if (setup_.ranks) return setup_.ranks->batch_size();
    return setup_.device ? gpu::tuning_for(setup_.device->capabilities()).batch_size : cpu_batch_size;
}

bool SubjectRun::all() {
    std::vector<KvOptions> caches = arguments_.caches();
    for (KvOptions& kv : caches) try {
            load_conditioning(kv.conditioning, setup_.model, console_);
            check_kv(kv, setup_.model.config.num_hidden_layers);
            if (!setup_.ranks && wants_measured_keys(kv, setup_.model)) {
                const auto open = [this](const ForwardOptions& exact) {
                    return make_forward(setup_.model.config, setup_.model.weights, exact);
                };
                kv.conditioning.calibration = measured_keys(setup_.model, setup_.options, console_, open);
            }
            if (!choose_tests(kv)) continue;
            const std::optional<Check> checked = check(kv);
            for (const uint32_t batch : arguments_.batch_list())
                for (const uint32_t threads : setup_.device ? std::vector<uint32_t>{0} : arguments_.thread_list())
                    measure({.kv = kv, .threads = thread_count(threads), .batch_size = batch == 0 ? usual_batch() : batch},
                            checked);
        } catch (const Error& error) { // the rest can still be measured
            complain(error.what());
        } catch (const std::bad_alloc&) {
            complain(fmt::format("out of memory for {} with a cache of {}", setup_.model.name, describe(kv)));
        }
    return good_;
}

int run_subjects(const Arguments& arguments, Console& console, const std::function<bool(Subject&)>& run,
                 const std::function<void()>& finish) {
    bool good = true;
    const auto end = [&] {
        console.clear_status();
        finish();
    };
    try {
        for (ModelArguments model : arguments.model_list()) {
            model.context_size = 1; // each run sets its own context; a warning of too long a context would be of no use
            Subject subject = open_subject(model, console);
            warn_of_reading(subject.setup);
            catch_interrupts();
            good &= run(subject);
        }
    } catch (const LoadStopped&) {
        end();
        return 130;
    } catch (const Error&) {
        end();
        throw;
    }
    end();
    return good ? 0 : 1;
}

} // namespace tq::bench
