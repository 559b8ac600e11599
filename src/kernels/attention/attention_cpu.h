// attention() on the workers of a pool, in vectors.
#pragma once

#include "kernels/attention/attention.h"

namespace nibble::kernels {

// kInvalidArgument when the workspace is too small. Bits do not depend on the number of workers.
Status attention_cpu(const AttentionArgs& args, const Exec& exec);

// Bytes of workspace that `num_workers` use, whatever the rows and positions are.
std::int64_t attention_cpu_workspace_bytes(std::int32_t head_dim, int num_workers);

}  // namespace nibble::kernels
