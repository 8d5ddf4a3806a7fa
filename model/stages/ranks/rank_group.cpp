// Begin of a job. Each rank first says what it is, or why it cannot take part; so rank 0 knows all problems at once, and names
// them together. Facts that must be equal (build, model, options) are compared as texts (RankFacts::agreed): a rank with another
// build could compute other bits, and pages of the prefix cache would mix. If anything differs, all are told to end. Parts are
// loaded by all ranks at the same time: orders go out first (StageOrder), answers are collected when the stages are put together.
// divide_layers() gives each rank layers in proportion to its memory; rank 0 also has the embedding and the head, so the bytes
// outside of layers count as its first ones.
#include "model/stages/ranks/rank_group.h"
#include "base/ensure.h"
#include "base/printable.h"
#include "model/stages/split_forward.h"
#include <algorithm>
#include <fmt/ranges.h>
#include <numeric>

namespace tq {
namespace {

void write_facts(MessageWriter& to, const RankFacts& facts) {
    to.add_text(facts.host);
    to.add_text(facts.device);
    to.add(facts.available_bytes);
    to.add(facts.batch_size);
    to.add(uint32_t(facts.agreed.size()));
    for (const auto& [what, text] : facts.agreed) {
        to.add_text(what);
        to.add_text(text);
    }
}

RankFacts read_facts(MessageReader& from) {
    RankFacts facts;
    facts.host = from.text();
    facts.device = from.text();
    facts.available_bytes = from.get<uint64_t>();
    facts.batch_size = from.get<uint32_t>();
    for (uint32_t left = from.get<uint32_t>(); left > 0; left--) {
        const std::string what = from.text();
        facts.agreed[what] = from.text();
    }
    return facts;
}

std::string name_of(uint32_t rank, const RankFacts& facts) {
    return printable(fmt::format("rank {} ({}: {})", rank, facts.host, facts.device), 200);
}

double layer_bytes(const Weights& weights) {
    double bytes = 0;
    const auto add = [&](const Tensor& tensor) { bytes += double(tensor.bytes()); };
    for (const LayerWeights& layer : weights.layers) for_each_tensor_of_layer(layer, add);
    return bytes;
}

// Returns the differences of the ranks: "rank 1 (b: CPU) has the version X, where rank 0 has Y".
std::vector<std::string> differences(std::span<const RankFacts> ranks) {
    std::vector<std::string> out;
    for (uint32_t rank = 1; rank < ranks.size(); rank++)
        for (const auto& [what, expected] : ranks[0].agreed) {
            const auto found = ranks[rank].agreed.find(what);
            const std::string has = found == ranks[rank].agreed.end() ? "none" : found->second;
            if (has != expected)
                out.push_back(fmt::format("{} has another {}: {}, where rank 0 has {}", name_of(rank, ranks[rank]), what,
                                          printable(has, 200), printable(expected, 200)));
        }
    return out;
}

} // namespace

void join(Transport& transport, const RankFacts& facts) {
    MessageWriter message;
    message.add(RankReply::done);
    write_facts(message, facts);
    transport.send(0, message.bytes());
}

void refuse_to_join(Transport& transport, const std::string& why) {
    MessageWriter message;
    message.add(RankReply::failed);
    message.add_text(transport.host());
    message.add_text(why);
    transport.send(0, message.bytes());
}

// Rank r ends at the layer with which the ranks up to it have their share of all bytes. The first bytes are those outside of
// layers, which are rank 0's. The running sum is rounded and not each share, so that no layer is lost, and the last rank takes
// the rest.
std::vector<uint32_t> divide_layers(const Weights& weights, std::span<const uint32_t> counts, std::span<const RankFacts> ranks) {
    const auto layers = uint32_t(weights.layers.size());
    if (!counts.empty()) {
        const uint64_t all = std::accumulate(counts.begin(), counts.end(), uint64_t(0));
        if (counts.size() != ranks.size() || all != layers)
            fail("--layers-per-rank has {} numbers with a sum of {}, for {} ranks and a model of {} layers", counts.size(), all,
                 ranks.size(), layers);
        return {counts.begin(), counts.end()};
    }
    const double all_bytes = double(weights.bytes()), in_layers = layer_bytes(weights), of_layer = in_layers / layers;
    double memory = 0, until = 0;
    for (const RankFacts& rank : ranks) memory += double(std::max<uint64_t>(rank.available_bytes, 1));
    std::vector<uint32_t> out;
    uint32_t begin = 0;
    for (const RankFacts& rank : ranks) {
        until += double(std::max<uint64_t>(rank.available_bytes, 1)) / memory;
        const double target = std::max(0.0, (until * all_bytes - (all_bytes - in_layers)) / of_layer);
        const uint32_t end = out.size() + 1 == ranks.size() ? layers : std::min(layers, uint32_t(target + 0.5));
        out.push_back(std::max(begin, end) - begin);
        begin = std::max(begin, end);
    }
    return out;
}

Split split_of_ranks(std::span<const uint32_t> layers) {
    std::vector<uint32_t> rank_of;
    for (uint32_t rank = 0; rank < layers.size(); rank++) rank_of.insert(rank_of.end(), size_t(2) * layers[rank], rank);
    rank_of.push_back(0); // the head
    return Split(std::move(rank_of), uint32_t(layers.size()));
}

// All ranks are heard before anything is decided: one that was not waited for would wait for an answer forever.
RankGroup::RankGroup(Transport& transport, RankFacts own) : facts_{std::move(own)} {
    ENSURE(transport.rank() == 0, "rank {}", transport.rank());
    std::vector<std::string> problems;
    for (uint32_t rank = 1; rank < transport.size(); rank++) {
        MessageReader message(transport.receive(rank));
        RankFacts facts;
        if (message.get<RankReply>() == RankReply::failed) {
            const std::string host = message.text();
            problems.push_back(fmt::format("rank {} ({}) cannot take part: {}", rank, printable(host), message.text()));
        } else {
            facts = read_facts(message);
        }
        links_.push_back(std::make_unique<RankLink>(transport, rank, name_of(rank, facts)));
        facts_.push_back(std::move(facts));
    }
    if (problems.empty()) problems = differences(facts_);
    if (problems.empty()) return;
    for (const auto& link : links_) link->end();
    fail("{}", fmt::join(problems, "; "));
}

RankGroup::~RankGroup() {
    for (const auto& link : links_) link->end();
}

std::string RankGroup::name(uint32_t rank) const { return name_of(rank, facts_[rank]); }

uint32_t RankGroup::batch_size() const { return std::ranges::min_element(facts_, {}, &RankFacts::batch_size)->batch_size; }

std::unique_ptr<Forward> RankGroup::make_forward(const Config& config, const Weights& weights, const ForwardOptions& options,
                                                 const Split& split, const MakeStage& own) {
    std::vector<std::unique_ptr<StageOrder>> orders; // all ranks load at the same time
    for (uint32_t rank = 1; rank < size(); rank++) {
        ForwardOptions part = options;
        part.held = split.held(rank);
        const bool has_some = !part.held.ranges(split.layers()).empty();
        orders.push_back(has_some ? std::make_unique<StageOrder>(*links_[rank - 1], config, part) : nullptr);
    }
    std::vector<MakeStage> make{own};
    for (const auto& order : orders)
        make.push_back([&order](const Cache& cache, const ForwardOptions&) { return order->start(cache); });
    return make_split_forward(config, weights, options, split, make);
}

std::vector<MemoryPlan> RankGroup::plans(const RankModel& own, const ForwardOptions& options, const Split& split) {
    std::vector<MemoryPlan> out;
    for (uint32_t rank = 0; rank < size(); rank++) {
        ForwardOptions part = options;
        part.held = split.held(rank);
        if (rank == 0) {
            out.push_back(own.plan(part));
            continue;
        }
        MessageWriter request;
        request.add(RankRequest::plan);
        write_options(request, part, split.layers());
        out.push_back(links_[rank - 1]->ask(request).get<MemoryPlan>());
    }
    return out;
}

// Ranks that have sent their facts, or will, wait for the end.
void end_job(Transport& transport) noexcept {
    MessageWriter request;
    request.add(RankRequest::end);
    for (uint32_t rank = 1; rank < transport.size(); rank++) try {
            transport.receive(rank);
            transport.send(rank, request.bytes());
        } catch (const Error&) { // it has ended before
        }
}

} // namespace tq
