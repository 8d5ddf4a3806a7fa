#include "tools/tq-run/bench/schedule.h"
#include "tools/tq-run/bench/arguments.h"
#include "tools/tq-run/engine/choose_device.h"
#include <fmt/format.h>
#include <numeric>

namespace tq::bench {

Schedule::Schedule(const Arguments& arguments, const std::vector<double>& work) {
    for (const ModelArguments& model : arguments.model_list()) {
        const size_t threads = chooses_cpu(model.device) ? arguments.thread_list().size() : 1;
        const size_t times = arguments.caches().size() * arguments.batch_list().size() * threads;
        count_ += times * work.size();
        work_ += double(times) * std::accumulate(work.begin(), work.end(), 0.0);
    }
}

std::string Schedule::text() const { return fmt::format("test {} of {}{}", number_, count_, left_.after(done_, work_)); }

} // namespace tq::bench
