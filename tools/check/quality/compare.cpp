#include "tools/check/quality/compare.h"
#include "base/ensure.h"
#include "base/error.h"
#include <algorithm>
#include <nlohmann/json.hpp>

namespace tq::quality {

using nlohmann::json;

std::vector<std::vector<Divergence>> compare(std::span<Forward* const> measured, Forward& reference,
                                             std::span<const uint32_t> ids, const KeepGoing& keep_going) {
    constexpr uint32_t step = 64; // tokens whose logits are kept at a time
    ENSURE(ids.size() >= 2, "{} ids", ids.size());
    std::vector<std::vector<Divergence>> out(measured.size());
    std::vector<std::vector<float>> expected;
    reference.truncate(0);
    for (Forward* forward : measured) forward->truncate(0);
    for (uint32_t first = 0; first + 1 < ids.size(); first += step) {
        const std::span part = ids.subspan(first, std::min<size_t>(step, ids.size() - 1 - first));
        expected.clear();
        reference.run_all(part,
                          [&](uint32_t, std::span<const float> logits) { expected.emplace_back(logits.begin(), logits.end()); });
        for (size_t m = 0; m < measured.size(); m++)
            measured[m]->run_all(part, [&](uint32_t i, std::span<const float> logits) {
                out[m].push_back(divergence(logits, expected[i], ids[first + i + 1]));
            });
        if (keep_going && !keep_going(first + uint32_t(part.size()))) return {};
    }
    return out;
}

json to_json(std::span<const Divergence> tokens) {
    json loss = json::array(), reference_loss = json::array(), kl = json::array(), same_top = json::array();
    for (const Divergence& d : tokens) {
        loss.push_back(d.loss);
        reference_loss.push_back(d.reference_loss);
        kl.push_back(d.kl);
        same_top.push_back(d.same_top ? 1 : 0);
    }
    return {{"loss", loss}, {"reference_loss", reference_loss}, {"kl", kl}, {"same_top", same_top}};
}

std::vector<Divergence> divergences(const json& part, size_t tokens) {
    std::vector<Divergence> out;
    try {
        for (size_t i = 0; i < part.at("kl").size(); i++)
            out.push_back(
                {part.at("loss").at(i), part.at("reference_loss").at(i), part.at("kl").at(i), part.at("same_top").at(i) == 1});
    } catch (const json::exception&) {
        out.clear();
    }
    if (out.size() != tokens) fail("the log has no part of {} tokens, so it is damaged: delete it", tokens);
    return out;
}

} // namespace tq::quality
