// Measurements whose parts are independent, over the ranks of a job: each rank has the whole model.
#pragma once
#include "model/ranks/message.h"
#include "model/ranks/transport.h"
#include <functional>
#include <optional>

namespace tq {

// Measures a part, which `order` describes; nothing where it was stopped.
using MeasurePart = std::function<std::optional<std::vector<std::byte>>(uint32_t part, MessageReader& order)>;
// Describes a part, where its number does not say all.
using OrderPart = std::function<void(uint32_t part, MessageWriter& order)>;
// Takes the result of a part, in their order.
using TakePart = std::function<void(uint32_t part, MessageReader result)>;

// Measures parts first, first + 1, ... end - 1: part i on rank (i - first) % size, at the same time; null: all here. On rank 0.
// Ends early where a part was stopped. Throws Error, with the rank, where it failed there; RankLost.
void measure_parts(Transport* transport, uint32_t first, uint32_t end, const MeasurePart& measure, const TakePart& take,
                   const OrderPart& order = {});

// What the other ranks do: measures the parts that rank 0 asks for, until it ends the job. Throws RankLost.
void serve_parts(Transport& transport, const MeasurePart& measure);

} // namespace tq
