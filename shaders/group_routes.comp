#version 440
#extension GL_GOOGLE_include_directive : require
#include "params.h"
#include "routes.h"

// routes: the pairs ordered by expert, pairs of one expert in their order, and their tiles of at most p.tile pairs. One workgroup
// per expert. It counts the pairs of all experts, to find where its own begin, and writes its own. Each of its invocations has a
// run of consecutive pairs, so that their order does not depend on which invocation is first.
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint workgroup = 1;
layout(push_constant) uniform Push { group_routes_params p; };
layout(binding = 0) buffer Routes { uint routes[]; };

shared uint counts[MAX_EXPERTS]; // of pairs of each expert
shared uint own[workgroup];      // of this one, in each invocation's run
shared uint pairs_before, tiles_before;

uint expert_of(uint pair) { return routes[ROUTES_HEADER_WORDS + pair]; }

void count_pairs(uint begin, uint end) {
    for (uint e = gl_LocalInvocationID.x; e < p.count; e += workgroup) counts[e] = 0;
    barrier();
    uint found = 0;
    for (uint pair = begin; pair < end; pair++) {
        const uint e = expert_of(pair);
        atomicAdd(counts[e], 1);
        found += e == gl_WorkGroupID.x ? 1 : 0;
    }
    own[gl_LocalInvocationID.x] = found;
    barrier();
    if (gl_LocalInvocationID.x == 0) {
        pairs_before = tiles_before = 0;
        for (uint e = 0; e < gl_WorkGroupID.x; e++) {
            pairs_before += counts[e];
            tiles_before += (counts[e] + p.tile - 1) / p.tile;
        }
    }
    barrier();
}

void main() {
    const uint pairs = routes[ROUTES_PAIRS], run = (pairs + workgroup - 1) / workgroup;
    const uint begin = min(gl_LocalInvocationID.x * run, pairs), end = min(begin + run, pairs), expert = gl_WorkGroupID.x;
    count_pairs(begin, end);
    const uint first = p.ordered_at + pairs_before, count = counts[expert], tiles = (count + p.tile - 1) / p.tile;
    uint to = first;
    for (uint i = 0; i < gl_LocalInvocationID.x; i++) to += own[i];
    for (uint pair = begin; pair < end; pair++)
        if (expert_of(pair) == expert) routes[to++] = pair;
    for (uint i = gl_LocalInvocationID.x; i < tiles; i += workgroup) {
        const uint at = p.tiles_at + (tiles_before + i) * ROUTES_TILE_WORDS;
        routes[at] = expert;
        routes[at + 1] = first + i * p.tile;
        routes[at + 2] = first + min((i + 1) * p.tile, count);
    }
    if (gl_LocalInvocationID.x == 0 && expert == p.count - 1) routes[ROUTES_TILES] = tiles_before + tiles;
}
