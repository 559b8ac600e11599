// rope_store() on the workers of a pool, in vectors; sines and cosines once for a row.
#pragma once

#include "kernels/rope/rope_store.h"

namespace nibble::kernels {

// Head sizes that it takes: a multiple of 16 up to 512.
bool fits_rope_store_cpu(const RopeStoreArgs& args);
Status rope_store_cpu(const RopeStoreArgs& args, const Exec& exec);

}  // namespace nibble::kernels
