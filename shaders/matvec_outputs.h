// The outputs of a matvec kernel; one text for GLSL and C++.
#define MATVEC_STORE 0u // y = W x
#define MATVEC_ADD 1u   // y += W x
#define MATVEC_GATED 2u // y[i] = silu((W x)[2 i]) * (W x)[2 i + 1]
// y += W x; and for the next norm: y[scaled + i] = y[i] * next_norm[i], y[squares + g] = sum of y[i]^2 of workgroup g
#define MATVEC_RESIDUAL 3u
