// Random bytes of a tensor, each a function of the tensor's key and its place: ranges can be filled
// in any order, anywhere, with the same result.
//
// Word w of a tensor, bytes 8 w to 8 w + 7, little endian, from r = random_word(key, w):
//   kBytes:   r
//   kBf16:    four values, quantiles[bits 0..11 of each 16 bits of r]
//   kScales:  eight bytes, middle_scale - 1, middle_scale or middle_scale + 1 each
#pragma once

#include <cstdint>
#include <span>

#include "formats/bf16.h"
#include "kernels/common/instance.h"
#include "nibble/status.h"
#include "tensor/exec.h"

namespace nibble::kernels {

enum class RandomForm : std::uint8_t { kBytes, kBf16, kScales };

inline constexpr std::int32_t kRandomQuantiles = 4096;

struct RandomFillArgs {
  void* out = nullptr;           // [bytes]; 8-byte aligned on a GPU
  std::int64_t bytes = 0;        // >= 0
  std::uint64_t first_word = 0;  // of the tensor, where `out` begins
  std::uint64_t key = 0;
  RandomForm form = RandomForm::kBytes;
  const formats::Bf16* quantiles = nullptr;  // kBf16: [kRandomQuantiles], always host memory
  std::uint8_t middle_scale = 0;             // kScales: 1 to 253
};

// kInvalidArgument: no room for `out`, or no quantiles. Bits are the same for every instance.
Status random_fill(const RandomFillArgs& args, const Exec& exec);
Status random_fill_ref(const RandomFillArgs& args);

// Every kernel of this build. Tests and benchmarks walk it.
std::span<const Instance<RandomFillArgs>> random_fill_instances();

}  // namespace nibble::kernels
