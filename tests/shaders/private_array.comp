#version 440

// y[i] = the i-th of `size` values computed before: an array that no driver keeps in registers when it is large.
// params: no_params
layout(local_size_x = 64) in;
layout(constant_id = 0) const uint size = 4;
layout(binding = 0) buffer Y { uint y[]; };

void main() {
    uint values[size];
    uint state = gl_GlobalInvocationID.x;
    for (uint i = 0; i < size; i++) {
        state = state * 1664525u + y[i];
        values[state % size] = state;
    }
    y[gl_GlobalInvocationID.x] = values[state % size];
}
