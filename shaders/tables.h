// Tables, one text for GLSL and C++. The TurboQuant codebooks (model/kv/turboquant.md): magnitude levels as bytes, the smallest
// lowest, and the thresholds on y^2 / |y|^2 between them as fp32 bit patterns for head_dim 128. Every level fits an int8.
#define TQ2_LEVELS 0x641eu          // 30 100
#define TQ3_LEVELS 0x7247280du      // 13 40 71 114
#define TQ4_LEVELS_LOW 0x24190f05u  // 5 15 25 36
#define TQ4_LEVELS_HIGH 0x684f3e30u // 48 62 79 104
#define TQ5_LEVELS_0 0x0e0a0602u    // 2 6 10 14
#define TQ5_LEVELS_1 0x1f1a1612u    // 18 22 26 31
#define TQ5_LEVELS_2 0x352f2924u    // 36 41 47 53
#define TQ5_LEVELS_3 0x6150453cu    // 60 69 80 97
// tq6: 1 3 5 ... 31, that is 2 i + 1, for the first 16
#define TQ6_LEVELS_4 0x2a272421u // 33 36 39 42
#define TQ6_LEVELS_5 0x3633302du // 45 48 51 54
#define TQ6_LEVELS_6 0x47423e3au // 58 62 66 71
#define TQ6_LEVELS_7 0x6c5d544du // 77 84 93 108

// Trellis-coded types (model/kv/turboquant.md): 8 signed levels of indices 0 .. 7; index 15 - i has the negative of index i's.
// Then the square of the level units in a standard deviation, times 64. tq4t has 16 levels; index i + 16 has the negative, and
// its square is that of half units.
#define TQ2T_LEVELS_LOW 0xd54118ffu  // -1 24 65 -43
#define TQ2T_LEVELS_HIGH 0x23bcf169u // 105 -15 -68 35
#define TQ2T_SQUARE_UNIT 156816u
#define TQ3T_LEVELS_LOW 0xe70e743eu  // 62 116 14 -25
#define TQ3T_LEVELS_HIGH 0xfb23d0adu // -83 -48 35 -5
#define TQ3T_SQUARE_UNIT 142884u
#define TQ4T_LEVELS_0 0xf0dbc083u // -125 -64 -37 -16
#define TQ4T_LEVELS_1 0x492b1603u // 3 22 43 73
#define TQ4T_LEVELS_2 0xf9e6cfabu // -85 -49 -26 -7
#define TQ4T_LEVELS_3 0x6538200cu // 12 32 56 101
#define TQ4T_SQUARE_UNIT 440896u

#define TQ2_THRESHOLDS 0x3bf6badau
#define TQ3_THRESHOLDS 0x3b0046d5u, 0x3c0ca9e7u, 0x3cc35dc1u
#define TQ4_THRESHOLDS 0x3a0cc453u, 0x3b0cc453u, 0x3ba3af7du, 0x3c1b320cu, 0x3c851196u, 0x3cdaa3bbu, 0x3d38256cu
#define TQ5_THRESHOLDS                                                                                                           \
    0x39145477u, 0x3a145477u, 0x3aa6df06u, 0x3b145477u, 0x3b67c3fau, 0x3ba6df06u, 0x3beb507fu, 0x3c228fd2u, 0x3c56b583u,         \
    0x3c8c37d8u, 0x3cb5111bu, 0x3ce73448u, 0x3d16a81au, 0x3d48fe44u, 0x3d8dd0e9u
#define TQ6_THRESHOLDS                                                                                                           \
    0x381dc886u, 0x391dc886u, 0x39b18197u, 0x3a1dc886u, 0x3a768951u, 0x3ab18197u, 0x3af19b0du, 0x3b1dc886u, 0x3b47b1cau,         \
    0x3b768951u, 0x3b95278fu, 0x3bb18197u, 0x3bd052c1u, 0x3bf19b0du, 0x3c0aad3eu, 0x3c1dc886u, 0x3c376664u, 0x3c58aeb0u,         \
    0x3c7cbd03u, 0x3c91c8aeu, 0x3ca695deu, 0x3cbcc611u, 0x3cd45947u, 0x3cf19b0du, 0x3d0aad3eu, 0x3d1dc886u, 0x3d34c06bu,         \
    0x3d52f155u, 0x3d79a0b3u, 0x3d96dab2u, 0x3dc28996u
// 7 bits: levels 2 i + 1 for all 64, and the first threshold; number i is i^2 times it.
#define TQ7_THRESHOLD 0x37d3f061u

// The 16 levels of IQ4_NL and IQ4_XS weights, and MXFP4's doubled: signed bytes, level i in byte i % 4 of word i / 4.
#define IQ4_LEVELS_0 0xbfad9881u   // -127 -104 -83 -65
#define IQ4_LEVELS_1 0xf6eaddcfu   // -49 -35 -22 -10
#define IQ4_LEVELS_2 0x26190d01u   // 1 13 25 38
#define IQ4_LEVELS_3 0x71594535u   // 53 69 89 113
#define MXFP4_LEVELS_0 0x03020100u // 0 1 2 3
#define MXFP4_LEVELS_1 0x0c080604u // 4 6 8 12
#define MXFP4_LEVELS_2 0xfdfeff00u // 0 -1 -2 -3
#define MXFP4_LEVELS_3 0xf4f8fafcu // -4 -6 -8 -12
