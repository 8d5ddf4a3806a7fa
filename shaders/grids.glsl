// The grids of IQ weights: a matrix begins with GRID_ENTRIES entries of 16 bits (model/files/formats/grids.h), which
// prepare_weights() expands into shared memory, to at most 4096 bytes (table_bytes in model/gpu/matmul.cpp).
#if defined(FORMAT_iq2_xxs) || defined(FORMAT_iq3_xxs)
#define GRID_ENTRIES 256
#elif defined(FORMAT_iq2_xs) || defined(FORMAT_iq3_s)
#define GRID_ENTRIES 512
#elif defined(FORMAT_iq2_s)
#define GRID_ENTRIES 1024
#elif defined(FORMAT_iq1_s) || defined(FORMAT_iq1_m)
#define GRID_ENTRIES 2048
#else
#define GRID_ENTRIES 0
#endif

#if GRID_ENTRIES > 0
#if defined(FORMAT_iq3_s)
#define RAW_WORDS 6
#elif defined(FORMAT_iq2_xxs) || defined(FORMAT_iq1_s)
#define RAW_WORDS 3
#else
#define RAW_WORDS 4
#endif

// Returns four pairs of bits, or four nibbles, each in a byte.
uint spread_pairs(uint v) { return (v & 3) | (v & 0xc) << 6 | (v & 0x30) << 12 | (v & 0xc0) << 18; }
uint spread_nibbles(uint v) {
    const uint bytes_apart = ((v & 0xffff) | v << 8) & 0x00ff00ffu;
    return (bytes_apart | bytes_apart << 4) & 0x0f0f0f0fu;
}
// Returns the codes of eight weights: those of weights 0 ... 3 in the low halves of bytes, of 4 ... 7 in the high ones.
uint codes_of_eight(uint v) { return spread_pairs(v & 0xff) | spread_pairs((v >> 8) & 0xff) << 4; }
// Returns the magnitudes of four codes of IQ2: 8, 25, 43; of IQ3: odd numbers; 4, 12, 20, 28, 36, 44, 52, 62.
uint iq2_magnitudes(uint codes) { return 17 * codes + 0x08080808u + ((codes >> 1) & 0x01010101u); }
uint iq3_s_magnitudes(uint codes) { return 2 * codes + 0x01010101u; }
uint iq3_xxs_magnitudes(uint codes) {
    return 8 * codes + 0x04040404u + ((codes & (codes >> 1) & (codes >> 2) & 0x01010101u) << 1);
}
#endif
