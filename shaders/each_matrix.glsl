// EACH_MATRIX(DO): DO(0), DO(1), ..., DO(MAX_MATRICES - 1), one after the other. A loop over an array of matrices would have to
// be unrolled. Drivers do not unroll a loop that has a loop in it, or they unroll both: then the stores of all elements of all
// matrices are most of a kernel's code, all of which is fetched to run once. DO leaves out matrices that the kernel does not
// have.
#define EACH_4(DO, i) DO((i)) DO(((i) + 1u)) DO(((i) + 2u)) DO(((i) + 3u))
#define EACH_16(DO, i) EACH_4(DO, i) EACH_4(DO, (i) + 4u) EACH_4(DO, (i) + 8u) EACH_4(DO, (i) + 12u)
#define EACH_MATRIX(DO) EACH_16(DO, 0u) EACH_16(DO, 16u)
