// The interface of the page lab: a codec of a tile, the vectors of one kv head of one layer on the tokens of a page.
#pragma once
#include "model/kv/rotation.h"
#include <memory>
#include <span>
#include <vector>

namespace tq::page_lab {

// A square matrix of the channels of a head, [dim][dim].
using Matrix = std::vector<double>;

// What a calibration text says of one kv head's keys or values. Errors d cost d^T metric d: the metric of keys is the mean of
// q q^T over the queries, that of values the sum of Wo^T Wo over the columns of the query heads in the output projection.
struct Statistics {
    Matrix covariance; // about the mean
    Matrix metric;
};

struct Tile {
    uint32_t layer, layers, head; // the layer that names the rotations, among so many
    KvSide side;
    size_t tokens, dim;
    std::span<const float> x;       // [tokens][dim], in the space of exact vectors
    std::span<const float> queries; // [any number][dim], those of the page's tokens; only for keys
    const Statistics* statistics;   // null: there was no calibration
};

class TileCodec {
  public:
    virtual ~TileCodec() = default;

    // y[tokens][dim] = the decoded x. Returns the number of bits stored.
    virtual double code(std::span<float> y, const Tile& tile) const = 0;
};

using TileCodecPtr = std::unique_ptr<const TileCodec>;

// Returns x as it is after being stored in fp16.
float stored_half(float x);

// Parses words that '+' joins: transforms, and then the codec of what they leave; README.md lists them. Throws Error.
TileCodecPtr parse_tile_codec(std::string_view text);

} // namespace tq::page_lab
