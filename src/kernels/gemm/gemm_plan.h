// How many weight rows a tile of the many-row kernel takes: a pure function of sizes and device.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/gemm/gemm.h"

namespace nibble::kernels {

inline constexpr std::int32_t kGemmTileRows = 128;  // of x

// 128, 192 or 256. A tile's time is its width and a little; tiles run in waves of num_sms. So the
// width with the least waves times width, of equals the widest, which reads the least.
std::int32_t gemm_tile_n(std::int32_t rows, std::span<const GemmPart> parts, std::int32_t num_sms);

}  // namespace nibble::kernels
