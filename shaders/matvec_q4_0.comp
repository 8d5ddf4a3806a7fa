#version 460
#extension GL_GOOGLE_include_directive : require
// params: matvec_params
#define FORMAT_q4_0
#include "matvec.glsl"
