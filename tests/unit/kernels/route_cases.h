// The cases of tools/golden/route_golden.py, drawn from the same counter generator.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/route/ragged.h"
#include "kernels/route/route.h"

namespace nibble::kernels {

std::uint64_t mix(std::uint64_t stream, std::uint64_t which, std::uint64_t index);

// Inputs of one case. `args` points into the vectors: neither copied nor moved once made.
struct RouteCase {
  explicit RouteCase(std::uint32_t number);
  RouteCase(const RouteCase&) = delete;
  RouteCase& operator=(const RouteCase&) = delete;

  RouteArgs args;
  std::uint32_t number = 0;
  std::vector<float> logits;
  std::vector<std::uint32_t> bias_bytes;
  std::vector<std::int32_t> given_ids;
  std::vector<std::int32_t> remap;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  std::int32_t num_faults = -1;

 private:
  void draw_sizes(const std::vector<std::uint64_t>& draws);
  void draw_placement(const std::vector<std::uint64_t>& draws);
  void draw_logits(std::uint64_t kind);
  void draw_bias(std::uint64_t kind, std::uint64_t dtype);
};

// A ragged description in memory of its own.
struct RaggedBuffers {
  RaggedBuffers(std::int64_t rows, std::int32_t num_experts, std::size_t num_block_sizes = 4);
  RaggedOut out();

  std::vector<std::int32_t> slice_sizes, slice_offs, gather, scatter, block_offs, schedule;
  std::vector<float> gates;
};

std::uint32_t hash_of(std::span<const std::span<const std::int32_t>> arrays);
struct Projection {
  double value = 0.0;
  double magnitude = 0.0;  // of the absolute values
};
Projection project(std::span<const float> first, std::span<const float> second);

}  // namespace nibble::kernels
