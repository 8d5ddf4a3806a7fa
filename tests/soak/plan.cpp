#include "tests/soak/plan.h"
#include "base/splitmix64.h"
#include <algorithm>

namespace tq::soak {
namespace {

constexpr uint32_t shared_ids = 300;

Ids random_ids(uint64_t seed, uint32_t count) {
    Ids ids(count);
    for (uint32_t& id : ids) id = uint32_t(splitmix64(seed) % 300);
    return ids;
}

} // namespace

std::vector<Request> make_plan(uint64_t seed, uint32_t sequences) {
    std::vector<Request> plan;
    const auto up_to = [&](uint32_t max) { return uint32_t(splitmix64(seed) % (max + 1)); };
    for (uint32_t i = 0; i < sequences * turns; i++) {
        Request request{.number = i};
        if (i >= sequences) request.parent = up_to(3) > 0 ? i - sequences : up_to(i - 1);
        const bool goes_on = request.parent && up_to(2) > 0; // else it branches anywhere
        request.kept_permille = goes_on ? 1000 : up_to(1000);
        request.new_ids = 1 + up_to(up_to(3) > 0 ? 40 : 400);
        request.answer_ids = 1 + up_to(40);
        request.seed = splitmix64(seed);
        plan.push_back(request);
    }
    return plan;
}

bool is_ready(const Request& request, const Answers& answers) { return !request.parent || answers.contains(*request.parent); }

Ids prompt_of(const std::vector<Request>& plan, const Request& request, const Answers& answers) {
    Ids ids;
    if (request.parent) {
        ids = prompt_of(plan, plan[*request.parent], answers);
        const Ids& answer = answers.at(*request.parent);
        ids.insert(ids.end(), answer.begin(), answer.end());
    } else
        ids = random_ids(1, shared_ids);
    const size_t room = context_size - request.new_ids - request.answer_ids;
    ids.resize(std::min(ids.size() * request.kept_permille / 1000, room));
    const Ids more = random_ids(request.seed, request.new_ids);
    ids.insert(ids.end(), more.begin(), more.end());
    return ids;
}

} // namespace tq::soak
