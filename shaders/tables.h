// The TurboQuant codebooks (model/kv/turboquant.md), one text for GLSL and C++: magnitude levels as bytes, the smallest in the
// lowest byte, and the thresholds on y^2 / |y|^2 between them as fp32 bit patterns for head_dim 128.
#define TQ4_LEVELS_LOW 0x24190f05u  // 5 15 25 36
#define TQ4_LEVELS_HIGH 0x684f3e30u // 48 62 79 104
#define TQ3_LEVELS 0x7247280du      // 13 40 71 114
#define TQ2_LEVELS 0x641eu          // 30 100

#define TQ4_THRESHOLDS 0x3a0cc453u, 0x3b0cc453u, 0x3ba3af7du, 0x3c1b320cu, 0x3c851196u, 0x3cdaa3bbu, 0x3d38256cu
#define TQ3_THRESHOLDS 0x3b0046d5u, 0x3c0ca9e7u, 0x3cc35dc1u
#define TQ2_THRESHOLDS 0x3bf6badau
