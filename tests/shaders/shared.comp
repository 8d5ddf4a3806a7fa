#version 440

// Shared memory of every kind of type and length: tests/runtime/specialise_test.cpp adds it up.
// params: no_params
layout(local_size_x_id = 0, local_size_y_id = 3) in;
layout(constant_id = 1) const uint length = 5;
layout(constant_id = 2) const bool wide = false;
layout(binding = 0) buffer Y { uint y[]; };

struct Entry {
    float weight;
    vec3 direction;
    bool used;
};

const uint rows = wide ? length * 4 : length - 1;
const uint lanes = gl_WorkGroupSize.x * gl_WorkGroupSize.y;

shared float one;
shared vec2 pairs[(length + 3) / 4];
shared Entry entries[rows % 7];
shared uint table[rows][2];
shared uvec4 words[lanes >> 1];

void main() {
    const uint i = gl_LocalInvocationIndex;
    one = 1.0;
    pairs[0] = vec2(1.0);
    entries[0] = Entry(1.0, vec3(one), true);
    table[0][1] = i;
    words[i >> 1] = uvec4(i);
    barrier();
    y[i] = uint(one + pairs[0].x + entries[0].weight) + table[0][1] + words[0].x;
}
