#include "tools/tq-run/bench/result.h"
#include <algorithm>
#include <nlohmann/json.hpp>

namespace tq::bench {
namespace {

double busy_share(const RankUse& rank, const Result& r) {
    return double(rank.busy_ns) / double(std::max<uint64_t>(r.rank_ns, 1));
}

// The share of all ranks' time in which they do not compute.
double bubble(const Result& r) {
    double busy = 0;
    for (const RankUse& rank : r.ranks) busy += busy_share(rank, r);
    return 1 - busy / double(r.ranks.size());
}

double tokens_of(const Result& r) {
    return double(std::max<uint64_t>(1, std::ranges::max_element(r.ranks, {}, &RankUse::rows)->rows));
}

} // namespace

std::string ranks_text(const Setup& setup, const Result& r) {
    const Split split = setup.placing().rank_split(setup.model.weights);
    const double tokens = tokens_of(r);
    std::string text;
    for (uint32_t rank = 0; rank < r.ranks.size(); rank++) {
        const RankUse& use = r.ranks[rank];
        text += fmt::format("{}, {}: {:.3f} ms per token, {:.1f} % of the time; sent {:.0f}, received {:.0f} bytes per token\n",
                            setup.ranks->name(rank), describe_part(split, rank), double(use.busy_ns) * 1e-6 / tokens,
                            100 * busy_share(use, r), double(use.sent_bytes) / tokens, double(use.received_bytes) / tokens);
    }
    return text + fmt::format("bubble: {:.1f} % of the ranks' time", 100 * bubble(r));
}

Json ranks_json(const Setup& setup, const Result& r) {
    const Split split = setup.placing().rank_split(setup.model.weights);
    Json all = Json::array();
    for (uint32_t rank = 0; rank < r.ranks.size(); rank++) {
        const RankUse& use = r.ranks[rank];
        all.push_back({{"rank", rank},
                       {"host", setup.ranks->facts()[rank].host},
                       {"device", setup.ranks->facts()[rank].device},
                       {"part", describe_part(split, rank)},
                       {"tokens", use.rows},
                       {"busy_ns", use.busy_ns},
                       {"sent_bytes", use.sent_bytes},
                       {"received_bytes", use.received_bytes}});
    }
    return {{"ns", r.rank_ns}, {"bubble", bubble(r)}, {"each", all}};
}

} // namespace tq::bench
