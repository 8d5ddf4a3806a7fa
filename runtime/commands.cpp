// Runs recordings. A recording is a list of segments (recorder.cpp). Two segments are in flight at a time: while one runs, the
// next one already waits in the queue, so the GPU never waits for the host. Before a further segment the host waits for the older
// one, and asks keep_going; a stop waits for the submitted segments. Each of the two has a fence of its own, which is used in
// turn. run_all() submits several recordings, all at once if each is one segment. It does not wait between them: a recording that
// repeats begins with barriers that order it behind the one before, so the GPU runs a chain of sampled tokens without the host.
// Timestamps are added up only if nothing was stopped.
#include "runtime/commands.h"
#include "base/ensure.h"
#include <algorithm>

namespace tq {
namespace {

// Segments in flight. Its destructor waits for all of them, even after an exception, since their buffers may be freed next.
struct InFlight {
    Device::Impl& device;
    const OwnedFence (&fences)[2];
    size_t submitted = 0, waited = 0;

    void submit(std::span<const VkCommandBuffer> commands) {
        device.submit(commands, fences[submitted % 2]);
        submitted++;
    }
    void wait_one() { device.wait(fences[waited++ % 2]); }
    void wait_all() {
        while (waited < submitted) wait_one();
    }
    ~InFlight() {
        for (; waited < submitted; waited++) device.wait_to_end(fences[waited % 2]);
    }
};

} // namespace

Commands::Commands(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Commands::~Commands() = default;
Commands::Commands(Commands&&) noexcept = default;
Commands& Commands::operator=(Commands&&) noexcept = default;

size_t Commands::segments() const { return impl_->segments.size(); }

bool Commands::run(const std::function<bool()>& keep_going) {
    Commands* const self = this;
    return run_all({&self, 1}, keep_going);
}

// Short recordings, such as a token's each, are submitted together, as each submission has a cost of its own. If one of them has
// several segments, it takes long, and segments are submitted one at a time so that no submission exceeds the time after which
// drivers reset a device. keep_going is asked between two submissions, while one is still running. A stop waits for those that
// were submitted; the device is never interrupted.
bool Commands::run_all(std::span<Commands* const> all, const std::function<bool()>& keep_going) {
    if (all.empty()) return true;
    std::vector<VkCommandBuffer> segments;
    for (const Commands* one : all) {
        ENSURE(all.size() == 1 || one->impl_->stamps.empty(), "{} timed kernels", one->impl_->stamps.size());
        segments.insert(segments.end(), one->impl_->segments.begin(), one->impl_->segments.end());
    }
    Impl& first = *all[0]->impl_;
    InFlight flight{first.device, first.fences};
    const size_t at_a_time = segments.size() == all.size() ? segments.size() : 1; // else one recording takes long
    bool go_on = true;
    for (size_t at = 0; at < segments.size(); at += at_a_time) {
        if (flight.submitted - flight.waited == 2) flight.wait_one();
        if (flight.submitted > 0 && keep_going) go_on = keep_going();
        if (!go_on) break;
        flight.submit(std::span(segments).subspan(at, at_a_time));
    }
    flight.wait_all();
    if (go_on) first.add_up_stamps();
    return go_on;
}

void Commands::Impl::add_up_stamps() {
    const Capabilities& capabilities = device.capabilities;
    std::vector<uint64_t> ticks(stamps.size() * 2);
    for (size_t i = 0; i < queries.size(); i++) {
        const size_t first = i * stamps_per_pool, count = std::min<size_t>(ticks.size() - first, stamps_per_pool);
        check(vkGetQueryPoolResults(device.handle, queries[i], 0, uint32_t(count), count * 8, &ticks[first], 8,
                                    VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT),
              "reading timestamps");
    }
    for (size_t i = 0; i < stamps.size(); i++) {
        const Work& work = stamps[i].work;
        const std::string kernel =
            work.rows ? fmt::format("{} {} x {}", stamps[i].kernel, work.rows, work.cols) : std::string(stamps[i].kernel);
        ProfileRow& row = device.profile[kernel];
        row.kernel = kernel;
        row.calls++;
        row.ns += double((ticks[2 * i + 1] - ticks[2 * i]) & capabilities.timestamp_mask) * capabilities.timestamp_ns;
        const Work done = work.now ? work.now() : work;
        row.bytes += done.bytes;
        row.flops += done.flops;
    }
}

} // namespace tq
