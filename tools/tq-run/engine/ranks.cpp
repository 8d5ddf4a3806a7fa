// --layers-per-rank: the processes of an MPI job share a model. Each rank sets up its own part with the same flags; rank 0 runs
// the command, the others answer its stages (host_stages) until it leaves. Before anything is loaded all facts are gathered, and
// whatever must be equal is compared by names that people know (agreement): a rank with another build or cache would compute
// nonsense without an error.
// A rank that cannot take part tells rank 0 why and waits to be dismissed. To end it at once would end the whole job, with MPI's
// message instead of ours.
// MPI can be joined once in a process, so the job is a static (job()), and main leaves it when nothing uses it any more.
#include "tools/tq-run/engine/ranks.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/text.h"
#include "model/cpu/forward.h"
#include "model/gpu/forward.h"
#include "model/gpu/plan.h"
#include "model/gpu/tuning_file.h"
#include "model/prefix/owner.h"
#include "model/stages/ranks/mpi_transport.h"
#include "model/stages/ranks/rank_group.h"
#include "model/stages/ranks/stage_host.h"
#include "model/stages/split_forward.h"
#include "tools/check/conformance/subject.h"
#include "tools/tq-run/build.h"
#include "tools/tq-run/cli/console.h"
#include "tools/tq-run/engine/engine_devices.h"
#include "tools/tq-run/engine/setup.h"
#include <algorithm>

namespace tq {
namespace {

// This process's part in the job: MPI can be joined and left once.
struct Job {
    std::unique_ptr<Transport> transport;
    std::unique_ptr<RankGroup> group; // on rank 0, once all have joined
    bool gathered = false;            // rank 0 has waited for the others, which it then ends if they do not agree
};
Job& job() {
    static Job only;
    return only;
}

// Joins the job, once. Throws Error if other processes were started that this MPI does not see: each would do the whole work.
Transport& join_mpi() {
    if (job().transport) return *job().transport;
    auto transport = open_mpi();
    if (const uint32_t started = launched_processes(); transport->size() == 1 && started > 1)
        fail("{} processes were started, but the MPI of this build, {}, knows of one: start them with its own mpirun, or with an "
             "srun --mpi that it knows",
             started, mpi_version());
    job().transport = std::move(transport);
    return *job().transport;
}

// Returns the values that must be equal on all ranks, by names for people.
std::map<std::string, std::string> agreement(const Setup& setup, Console& console) {
    const Model& model = setup.model;
    const std::string identity = model.weights.files.empty() ? model.name : fingerprint(model, console);
    OwnerTexts texts = owner_texts({model.config, setup.options.kv, identity, "", ""});
    return {{"version", build_description()},
            {"model (its fingerprint)", texts["fingerprint"]},
            {"shape of the model", texts["shape"]},
            {"RoPE", texts["rope"]},
            {"cache configuration (types of each layer)", texts["types"]},
            {"cache configuration (rotation)", texts["rotation"]},
            {"cache configuration (scale rule)", texts["scale_rule"]},
            {"cache configuration (channel scaling)", texts["conditioning"]},
            {"cache configuration (window)", std::to_string(setup.options.kv.window)}};
}

RankFacts facts_of(const Setup& setup, Console& console) {
    RankFacts facts{job().transport->host(), setup.device ? setup.device->capabilities().name : "CPU"};
    const Placing placing = setup.placing();
    facts.available_bytes =
        placing.rank_model(setup.model.config, setup.model.weights, setup.options).plan(setup.options).available;
    facts.batch_size = setup.device
                           ? gpu::with_batch_size(setup.options, gpu::tuning_for(setup.device->capabilities())).batch_size
                           : cpu_batch_size;
    facts.agreed = agreement(setup, console);
    return facts;
}

// The work of a rank other than 0. It sets up with its own device and joins the job; if that fails, it tells rank 0 why, and
// waits for its answer. Then it runs its layers until rank 0 ends the job (host_stages). model.renew opens its device again after
// a loss; a rank on the CPU has none to open.
void run_part(Transport& transport, const ModelArguments& arguments) {
    Console quiet(ColorMode::off, true);
    std::unique_ptr<Setup> setup;
    try {
        setup.reset(new Setup(set_up(arguments, quiet)));
        catch_interrupts(); // Ctrl-C is for rank 0
        join(transport, facts_of(*setup, quiet));
    } catch (const std::exception& error) {
        refuse_to_join(transport, error.what());
        setup.reset();
        transport.receive(0);
        return;
    }
    Placing placing = setup->placing();
    RankModel model = placing.rank_model(setup->model.config, setup->model.weights, setup->options);
    model.renew = [&, had_one = setup->device != nullptr] {
        if (!had_one) return;
        setup->device = nullptr;
        placing = setup->placing();
        auto devices = open_devices(find_devices(setup->selector),
                                    conformance::subject_of(setup->model.config, setup->model.weights, setup->options.kv), quiet,
                                    WithoutGpu::cpu);
        if (!devices[0]) fail("its device is not there any more");
        setup->device = std::move(devices[0]);
        setup->device->memory_limit_bytes = setup->memory_limit_bytes;
        placing = setup->placing();
    };
    host_stages(transport, model);
}

} // namespace

std::optional<int> run_as_rank(const ModelArguments& arguments) {
    if (arguments.placement.layers_per_rank.empty()) return std::nullopt;
    Transport& transport = join_mpi();
    if (transport.rank() == 0) return std::nullopt;
    run_part(transport, arguments);
    return 0;
}

// Rank 0 only: returns the group of all ranks, once the others have agreed with `own`.
static RankGroup& gather(Setup& setup, RankFacts own) {
    job().gathered = true;
    if (!job().group) job().group = std::make_unique<RankGroup>(*job().transport, std::move(own));
    setup.device_name.clear();
    for (uint32_t rank = 0; rank < job().group->size(); rank++)
        setup.device_name += (rank == 0 ? "" : " + ") + job().group->name(rank);
    return *job().group;
}

void share_with_ranks(Setup& setup) {
    require_no_head(setup.model.config);
    if (job().transport->rank() != 0) return;
    Console quiet(ColorMode::off, true);
    setup.ranks = &gather(setup, facts_of(setup, quiet));
}

std::string own_device(const ModelArguments& arguments) {
    const std::string& devices = arguments.device;
    const bool no_job = !job().transport && arguments.placement.layers_per_rank.empty();
    if (no_job && !arguments.alone && launched_processes() > 1)
        throw UsageError(
            fmt::format("MPI has started {} processes, each of which would do the same: --layers-per-rank auto shares the model "
                        "among them; perplexity, needle and mix share a measurement with --log FILE --shard auto, and the same "
                        "command without mpirun and --shard then prints the result",
                        launched_processes()));
    if (no_job) return devices;
    if (!job().transport) throw UsageError("this command runs in one process: leave out --layers-per-rank");
    const std::vector<std::string> names = split(devices, ",");
    const uint32_t size = job().transport->size();
    if (names.size() != 1 && names.size() != size)
        throw UsageError(
            fmt::format("--device has {} names for {} ranks: give one for each, or one for all", names.size(), size));
    return names.size() == 1 ? names[0] : names[job().transport->rank()];
}

void leave_job() {
    Job& all = job();
    if (!all.transport) return;
    if (all.transport->rank() == 0 && !all.gathered) end_job(*all.transport);
    all.group.reset();
    all.transport.reset();
}

} // namespace tq
