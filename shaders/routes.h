// The routes of a pass through experts, shared by GLSL and C++: written by route.comp and group_routes.comp, read by the products
// of experts (rows.glsl) and by add_experts.comp. A pair is one token's one expert: pair = token * used + rank.
//
// words: the number of tiles, that of pairs, two unused ones; [pairs] the experts' numbers; [pairs] their weights, fp32; and for
// blocks [pairs] the pairs ordered by expert; then [tiles][3] an expert, and the first word of its pairs and the one after the
// last of them. Each part is as long as that of the most tokens of the pass.
#ifdef __cplusplus
#pragma once
#endif
#define ROUTES_TILES 0u
#define ROUTES_PAIRS 1u
#define ROUTES_HEADER_WORDS 4u
#define ROUTES_TILE_WORDS 3u
#define MAX_EXPERTS 512u
#define MAX_EXPERTS_USED 16u
