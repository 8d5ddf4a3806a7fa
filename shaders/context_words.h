// Sizes in shaders/context.glsl, shared by GLSL and C++.
#ifdef __cplusplus
#pragma once
#endif
#define CONTEXT_HEADER_WORDS 8
#define ROW_WORDS 7
#define PAGE 256u
