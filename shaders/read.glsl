// Read-only buffers in words of 16 bytes: READ_VECTORS(binding, name) declares uvec4 name(uint i). It reads a storage buffer,
// or a texel buffer in a texel-buffer variant.
//
// A texel-buffer variant (NAME_texel) is for devices that are processors, whose invocations are the lanes of a vector: Mesa's
// software driver gathers texels with vectors, but reads storage buffers lane by lane; and loops are kept short, for it inlines nothing it need not.
#ifdef TEXEL
#define READ_VECTORS(at, name) layout(binding = at) uniform usamplerBuffer name##_texels; \
    uvec4 name(uint i) { return texelFetch(name##_texels, int(i)); }
#else
#define READ_VECTORS(at, name) layout(binding = at) readonly buffer name##_buffer { uvec4 name##_vectors[]; }; \
    uvec4 name(uint i) { return name##_vectors[i]; }
#endif
