#include "model/ranks/parts.h"
#include "model/ranks/stage_messages.h"
#include <new>

namespace tq {
namespace {

// How a rank answers a request for a part.
enum class PartReply : uint32_t { done, stopped, failed };

// The parts that other ranks have been asked for: at most one each.
class Asked {
  public:
    Asked(Transport& transport, uint32_t first, uint32_t end, const OrderPart& order)
        : transport_(transport), end_(end), order_(order), asked_(transport.size()) {
        for (uint32_t rank = 1; rank < transport.size(); rank++) ask(rank, first + rank);
    }
    // Nobody waits to send what nobody receives.
    ~Asked() {
        for (uint32_t rank = 1; rank < asked_.size(); rank++) try {
                if (asked_[rank]) transport_.receive(rank);
            } catch (const Error&) { // it has ended
            }
    }
    Asked(const Asked&) = delete;
    Asked& operator=(const Asked&) = delete;

    // Returns a part of another rank, which then has the next one to measure; nothing where it was stopped.
    std::optional<MessageReader> take(uint32_t rank, uint32_t part) {
        asked_[rank] = false;
        MessageReader reply(transport_.receive(rank));
        const auto how = reply.get<PartReply>();
        if (how == PartReply::failed) fail("rank {}: {}", rank, reply.text());
        if (how == PartReply::stopped) return std::nullopt;
        ask(rank, part + transport_.size());
        return reply;
    }

  private:
    void ask(uint32_t rank, uint64_t part) {
        if (part >= end_) return;
        MessageWriter request;
        request.add(RankRequest::measure);
        request.add(uint32_t(part));
        if (order_) order_(uint32_t(part), request);
        transport_.send(rank, request.bytes());
        asked_[rank] = true;
    }

    Transport& transport_;
    const uint32_t end_;
    const OrderPart& order_;
    std::vector<bool> asked_; // of each rank: a reply is on its way
};

} // namespace

// Measures a part on rank 0.
static std::optional<MessageReader> measure_here(uint32_t part, const MeasurePart& measure, const OrderPart& order) {
    MessageWriter what;
    if (order) order(part, what);
    MessageReader from({what.bytes().begin(), what.bytes().end()});
    auto result = measure(part, from);
    return result ? std::optional<MessageReader>(std::move(*result)) : std::nullopt;
}

void measure_parts(Transport* transport, uint32_t first, uint32_t end, const MeasurePart& measure, const TakePart& take,
                   const OrderPart& order) {
    std::optional<Asked> asked;
    if (transport) asked.emplace(*transport, first, end, order);
    const uint32_t ranks = transport ? transport->size() : 1;
    for (uint32_t part = first; part < end; part++) {
        const uint32_t rank = (part - first) % ranks;
        std::optional<MessageReader> result = rank != 0 ? asked->take(rank, part) : measure_here(part, measure, order);
        if (!result) return;
        take(part, std::move(*result));
    }
}

void serve_parts(Transport& transport, const MeasurePart& measure) {
    for (;;) {
        MessageReader from(transport.receive(0));
        if (from.get<RankRequest>() == RankRequest::end) return;
        const auto part = from.get<uint32_t>();
        MessageWriter reply;
        std::optional<std::vector<std::byte>> result;
        const auto failure = failure_of([&] { result = measure(part, from); });
        reply.add(failure ? PartReply::failed : result ? PartReply::done : PartReply::stopped);
        if (failure) reply.add_text(*failure);
        if (result) reply.add_bytes(*result);
        transport.send(0, reply.bytes());
    }
}

} // namespace tq
