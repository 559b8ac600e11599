// Maps of matrices for the copy engine.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "nibble/status.h"
#include "tensor/cuda_status.cuh"
#include "tensor/device_errors.h"

namespace nibble::kernels {

// Columns of a box: 128 bytes of bf16, one line of the swizzle.
inline constexpr std::int32_t kBoxCols = 64;

// The driver's function, asked for at run time: programs are not linked with the driver.
inline Result<PFN_cuTensorMapEncodeTiled_v12000> tensor_map_encoder() {
  constexpr const char* kName = "cuTensorMapEncodeTiled";
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  NIBBLE_RETURN_IF_ERROR(cuda_status(
      cudaGetDriverEntryPointByVersion(kName, &function, 12000, cudaEnableDefault, &found), kName));
  if (function == nullptr || found != cudaDriverEntryPointSuccess) {
    return device_call_failed(kName, "want a driver of CUDA 12.0 or later", found);
  }
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

// A bf16 matrix [rows, cols], rows 16-byte aligned, read in boxes of box_rows x kBoxCols: rows land
// 128 bytes apart, 16-byte piece c of row r at place c ^ (r % 8). What is not there reads as zero.
inline Status map_matrix(const void* data, std::int64_t rows, std::int64_t cols,
                         std::int32_t box_rows, CUtensorMap* map) {
  static const Result<PFN_cuTensorMapEncodeTiled_v12000> kEncode = tensor_map_encoder();
  if (!kEncode.has_value()) {
    return kEncode.error();
  }
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(cols), static_cast<cuuint64_t>(rows)};
  const cuuint64_t stride_bytes[] = {static_cast<cuuint64_t>(cols) * 2};
  const cuuint32_t box[] = {kBoxCols, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t steps[] = {1, 1};
  const CUresult result = kEncode.value()(
      map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(data), sizes, stride_bytes, box,
      steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS
             ? Status()
             : device_call_failed("cuTensorMapEncodeTiled", "want rows aligned to 16 bytes",
                                  static_cast<int>(result));
}

}  // namespace nibble::kernels
