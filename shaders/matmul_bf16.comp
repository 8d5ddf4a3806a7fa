#version 460
#extension GL_GOOGLE_include_directive : require
// params: matmul_params
#define FORMAT_bf16
#include "matmul.glsl"
