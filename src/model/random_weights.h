// Random weights of a model: for each tensor its key and distribution. Every byte is a function of
// (seed, tensor name, place), made by kernels/random.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "kernels/random/random_fill.h"
#include "nibble/status.h"
#include "weights/checkpoint.h"

namespace nibble::model {

// What random_fill() needs to know of a tensor.
struct RandomRecipe {
  std::uint64_t key = 0;
  kernels::RandomForm form = kernels::RandomForm::kBytes;
  std::array<formats::Bf16, kernels::kRandomQuantiles> quantiles{};  // kBf16
  std::uint8_t middle_scale = 0;                                     // kScales

  // Bytes [offset, offset + bytes) of the tensor; `offset` is a multiple of 8.
  kernels::RandomFillArgs fill(void* out, std::int64_t offset, std::int64_t bytes) const;
};

// Dense tensors are bf16, close to normal. Widths keep activations near 1: 1 / sqrt(fan_in) for
// matrices, norms around 1, small biases and sinks. MXFP4 codes are uniform; scales take three
// neighbouring exponents so that the products have the same width. Names are Hugging Face's.
// kInternal: a dtype that has no distribution.
Result<RandomRecipe> random_recipe(std::uint64_t seed, const weights::TensorSpec& spec);

// Fills bytes [offset, offset + out.size()) of `spec`; `offset` is a multiple of 8.
Status fill_random(std::uint64_t seed, const weights::TensorSpec& spec, std::int64_t offset,
                   std::span<std::byte> out);

}  // namespace nibble::model
