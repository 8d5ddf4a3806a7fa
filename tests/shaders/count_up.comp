#version 440

// Adds 1 to every element, in place.
// params: no_params
layout(local_size_x = 64) in;
layout(binding = 0) buffer X { uint x[]; };

void main() {
    const uint i = gl_GlobalInvocationID.x;
    if (i < x.length()) x[i] += 1;
}
