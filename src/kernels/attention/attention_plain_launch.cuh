// Launch of the plain kernel: a warp for each row and head.
#pragma once

#include <algorithm>

#include "kernels/attention/attention_launch.cuh"
#include "kernels/attention/device/attention_plain.cuh"

namespace nibble::kernels {

template <typename Q, typename Kv>
Status launch_plain(const AttentionArgs& args, const Exec& exec) {
  std::int32_t rows = 0;
  for (const AttentionSequence& sequence : args.sequences) {
    rows = std::max(rows, sequence.num_rows);
  }
  const LaunchShape shape{.grid = dim3(ceil_div(rows, device::kPlainAttentionWarps),
                                       static_cast<unsigned>(args.num_heads),
                                       static_cast<unsigned>(args.sequences.size())),
                          .block = dim3(32 * device::kPlainAttentionWarps),
                          .is_dependent = true};
  return launch("attention_plain", device::attention_plain<Q, Kv>, shape, exec,
                attention_params(args, {}));
}

}  // namespace nibble::kernels
