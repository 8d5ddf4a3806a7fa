// Every GPU kernel as one typed function, outputs first. model/reference/kernels.h defines their results as plain loops. A
// family of kernels has a header, which documents its functions, and a source, which chooses the kernel for a device and a
// shape, its tile, its constants and its grid, and records it; elementwise.h has nothing to choose, and so no source.
#pragma once
#include "model/gpu/attention.h"
#include "model/gpu/elementwise.h"
#include "model/gpu/experts.h"
#include "model/gpu/kv_append.h"
#include "model/gpu/matmul.h"
#include "model/gpu/recurrent.h"
#include "model/gpu/sampling.h"
