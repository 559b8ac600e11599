// The instruction sets that kernels are compiled for; include before any header of Highway. Plain
// code stays as the baseline; what lies between it and AVX2 costs build time and serves no machine
// that can hold a model.
#pragma once

#include <hwy/detect_targets.h>

#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
