// Limits of this processor, measured now: what a report divides by when it says "of the peak".
//
// Figures of shared machines move from minute to minute, so a fraction is only worth something when
// its divisor was measured in the same run.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "kernels/common/instance.h"

namespace nibble::kernels {

// Bytes a second that the workers of `pool` read together, each streaming its own part of a buffer
// of `bytes`: the median of five passes after a first one. Use several times the last-level cache.
// Allocates and touches the buffer, which takes longer than reading it.
double read_bandwidth(ThreadPool& pool, std::int64_t bytes);

// Operations a second (a multiply and an add are two) of the dot-product instruction that `isa`
// stands for, on registers, all workers of `pool` together: the median of three runs of about
// 10 ms. 0 when the processor lacks it.
//
//   kAvx2, kAvx512   f32 fused multiply-add      kAvx512Vnni  i8 x u8 -> i32
//   kAvx512Bf16      bf16 -> f32                 kAmxBf16     bf16 tiles -> f32
//   kAmxInt8         i8 tiles -> i32             kAny         0: nothing to measure
double dot_peak(ThreadPool& pool, CpuIsa isa);

// The instruction set of this processor with the most throughput for a type; kAny: none of ours.
CpuIsa best_f32_isa(const CpuFeatures& cpu);
CpuIsa best_bf16_isa(const CpuFeatures& cpu);
CpuIsa best_int8_isa(const CpuFeatures& cpu);

}  // namespace nibble::kernels
