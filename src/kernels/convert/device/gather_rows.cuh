// A block for each row.
#pragma once

#include <cstdint>

#include "kernels/common/element.cuh"
#include "kernels/common/ptx_grid.cuh"

namespace nibble::kernels::device {

inline constexpr int kGatherThreads = 256;

template <typename In>
__global__ void __launch_bounds__(kGatherThreads)
    gather_rows(const In* table, const std::int32_t* ids, float* out, int cols, int table_rows) {
  griddepcontrol_wait();
  const std::int32_t id = ids[blockIdx.x];
  const bool is_known = id >= 0 && id < table_rows;
  const In* from = table + std::int64_t{is_known ? id : 0} * cols;
  float* to = out + std::int64_t{blockIdx.x} * cols;
  for (int col = static_cast<int>(threadIdx.x); col < cols; col += kGatherThreads) {
    to[col] = is_known ? load_f32(from + col) : __int_as_float(0x7FFFFFFF);
  }
  griddepcontrol_launch_dependents();
}

}  // namespace nibble::kernels::device
