#include "kernels/moe/moe_workspace.h"

#include <algorithm>

#include "kernels/moe/int8_groups.h"

namespace nibble::kernels {
namespace {

constexpr std::int64_t round_up(std::int64_t value, std::int64_t to) {
  return (value + to - 1) / to * to;
}

std::int64_t row_bytes(const MoeArgs& args, std::int64_t cols) {
  if (args.inputs == ExpertInputs::kInt8) {
    return num_int8_groups(cols) * std::int64_t{sizeof(Int8Group)};
  }
  return round_up(cols, kRowColumns) * dtype_bits(args.x_dtype) / 8;
}

}  // namespace

MoeWorkspace lay_out_workspace(const MoeArgs& args, std::int32_t num_tokens) {
  MoeWorkspace work;
  std::byte* const base = args.workspace.data();
  const auto take = [&](std::int64_t bytes) {
    std::byte* const part = base == nullptr ? nullptr : base + work.bytes;
    work.bytes += round_up(bytes, 64);
    return part;
  };
  const std::int64_t pairs = std::int64_t{num_tokens} * args.top_k;
  work.x_row_bytes = row_bytes(args, args.hidden);
  work.h_row_bytes = row_bytes(args, args.intermediate);
  work.first = reinterpret_cast<std::int32_t*>(take(4 * (std::int64_t{args.num_experts} + 1)));
  work.routed = reinterpret_cast<std::int32_t*>(take(4 * pairs));
  work.position = reinterpret_cast<std::int32_t*>(take(4 * pairs));
  work.x = take(pairs * std::max(work.x_row_bytes, std::int64_t{4} * args.hidden));
  work.y = reinterpret_cast<float*>(work.x);
  work.h = take(pairs * work.h_row_bytes);
  return work;
}

void sort_by_expert(const MoeArgs& args, const MoeWorkspace& work) {
  const std::int32_t pairs = args.num_tokens * args.top_k;
  std::fill_n(work.first, args.num_experts + 1, 0);
  for (std::int32_t pair = 0; pair < pairs; ++pair) {
    ++work.first[args.ids[pair] + 1];
  }
  for (std::int32_t expert = 0; expert < args.num_experts; ++expert) {
    work.first[expert + 1] += work.first[expert];
  }
  for (std::int32_t pair = 0; pair < pairs; ++pair) {
    std::int32_t& next = work.first[args.ids[pair]];
    work.routed[next] = pair;
    work.position[pair] = next++;
  }
  // Each entry has moved on to the next expert's begin.
  std::copy_backward(work.first, work.first + args.num_experts, work.first + args.num_experts + 1);
  work.first[0] = 0;
}

}  // namespace nibble::kernels
