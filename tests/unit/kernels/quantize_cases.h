// Reader of tests/golden/quantize/cases.bin (layout: tools/golden/quantize_golden.py).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/quantize/quantize.h"

namespace nibble::kernels {

struct QuantizeInput {
  DType dtype = DType::kF32;
  std::int32_t num_experts = 0;
  std::int32_t rows = 0;
  std::int32_t cols = 0;
  std::vector<std::byte> row_major;
  std::vector<std::byte> column_major;
};

struct QuantizeCase {
  std::int32_t number = 0;
  const QuantizeInput* input = nullptr;
  QuantizeOptions options;
  std::vector<float> global_scales;
  std::vector<std::uint8_t> values;
  std::vector<std::uint8_t> scales;
  QuantizeReport report;
  std::uint64_t out_hash = 0;

  QuantizeArgs args() const;  // without pointers to results
};

struct QuantizeGolden {
  std::vector<QuantizeInput> inputs;
  std::vector<QuantizeCase> cases;
};

const QuantizeGolden& quantize_golden();

// FNV-1a of the bytes, every NaN as 0x7FC00000.
std::uint64_t hash_of(const std::vector<float>& values);

}  // namespace nibble::kernels
