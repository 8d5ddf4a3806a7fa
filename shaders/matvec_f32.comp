#version 460
#extension GL_GOOGLE_include_directive : require
// params: matvec_params
#define FORMAT_f32
#include "matvec.glsl"
