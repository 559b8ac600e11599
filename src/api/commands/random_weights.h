// Random weights whose every byte is a function of (seed, tensor name, offset): ranges can be
// filled in any order and on any number of threads, with the same result.
#pragma once

#include <cstdint>
#include <span>

#include "nibble/status.h"
#include "weights/checkpoint.h"

namespace nibble::commands {

// Fills bytes [offset, offset + out.size()) of `spec`; `offset` is a multiple of 8.
//
// Dense tensors are bf16, close to normal. Widths keep activations near 1: 1 / sqrt(fan_in) for
// matrices, norms around 1, small biases and sinks. MXFP4 codes are uniform; scales take three
// neighbouring exponents so that the products have the same width.
Status fill_random(std::uint64_t seed, const weights::TensorSpec& spec, std::int64_t offset,
                   std::span<std::byte> out);

}  // namespace nibble::commands
