// Returns the sum over a workgroup of any size in a fixed order, without subgroup operations. All invocations must call it.
shared float partial_sums[workgroup];

float workgroup_sum(float v) {
    partial_sums[gl_LocalInvocationID.x] = v;
    barrier();
    float sum = 0.0;
    for (uint i = 0; i < workgroup; i++) sum += partial_sums[i];
    barrier(); // partial_sums may be reused by the next call
    return sum;
}
