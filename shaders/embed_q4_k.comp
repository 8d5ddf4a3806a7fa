#version 460
#extension GL_GOOGLE_include_directive : require
// params: embed_params
#define FORMAT_q4_k
#include "embed.glsl"
