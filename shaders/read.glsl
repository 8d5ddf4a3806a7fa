// Read-only buffers in words of 16 bytes: READ_VECTORS(binding, name) declares uvec4 name(uint i). It reads a storage buffer,
// or a texel buffer in a texel-buffer variant.
// A texel-buffer variant (NAME_texel) is for devices that are processors, whose invocations are the lanes of a vector. Mesa's
// software driver gathers texels with vectors, but reads storage buffers lane by lane. Loops are kept short, because it inlines
// nothing that it need not. The same source makes both: `// once more for texels` in a kernel has it compiled again with TEXEL
// (shaders.cmake), and reads_texels() in model/gpu/pass.h chooses. A texel is 16 bytes, so buffers that are read so are padded to
// whole words of 16 bytes. A device limits texel buffers to fewer bytes than storage buffers (texel_range_bytes): a longer one is
// read by the plain variant.
#ifdef TEXEL
#define READ_VECTORS(at, name) layout(binding = at) uniform usamplerBuffer name##_texels; \
    uvec4 name(uint i) { return texelFetch(name##_texels, int(i)); }
#else
#define READ_VECTORS(at, name) layout(binding = at) readonly buffer name##_buffer { uvec4 name##_vectors[]; }; \
    uvec4 name(uint i) { return name##_vectors[i]; }
#endif
