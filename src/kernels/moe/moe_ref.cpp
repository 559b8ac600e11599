#include <algorithm>
#include <cmath>
#include <vector>

#include "formats/e2m1.h"
#include "formats/ue8m0.h"
#include "kernels/common/element.h"
#include "kernels/moe/moe.h"

namespace nibble::kernels {
namespace {

constexpr std::int64_t kBlock = 32;

double weight_at(const ExpertRows& rows, std::int64_t row, std::int64_t cols, std::int64_t col) {
  if (const auto* bf16 = std::get_if<Bf16Rows>(&rows)) {
    return bf16_to_f32(bf16->values[row * cols + col]);
  }
  const auto& mxfp4 = std::get<Mxfp4Rows>(rows);
  const std::int64_t block = row * (cols / kBlock) + col / kBlock;
  const std::uint8_t pair = mxfp4.blocks[block * 16 + col % kBlock / 2];
  const auto code = static_cast<std::uint8_t>(col % 2 == 0 ? pair & 0xFU : pair >> 4U);
  return double{formats::e2m1_to_f32(code)} * formats::ue8m0_to_f32(mxfp4.scales[block]);
}

// One row of W_e x + b_e; `row` counts over all experts.
template <typename Input>
double project(const ExpertMatrix& matrix, std::int64_t row, std::int64_t cols, const Input& x) {
  double sum = matrix.bias == nullptr ? 0.0 : double{bf16_to_f32(matrix.bias[row])};
  for (std::int64_t col = 0; col < cols; ++col) {
    sum += weight_at(matrix.weight, row, cols, col) * x(col);
  }
  return sum;
}

void expert_forward(const MoeArgs& args, std::int32_t token, std::int32_t slot) {
  const std::int64_t routed = std::int64_t{token} * args.top_k + slot;
  const std::int64_t expert = args.ids[routed];
  const std::int64_t gate_row = expert * 2 * args.intermediate;
  const auto x = [&](std::int64_t col) {
    return double{load_element(args.x, args.x_dtype, std::int64_t{token} * args.hidden + col)};
  };
  std::vector<float> h(static_cast<std::size_t>(args.intermediate));
  for (std::int64_t i = 0; i < args.intermediate; ++i) {
    const double u = project(args.gate_up, gate_row + 2 * i, args.hidden, x);
    const double l = project(args.gate_up, gate_row + 2 * i + 1, args.hidden, x);
    const double gate = std::min(u, double{args.limit});
    const double up = std::clamp(l, -double{args.limit}, double{args.limit});
    const double value = (up + 1.0) * gate / (1.0 + std::exp(-args.alpha * gate));
    store_element(h.data(), DType::kF32, i, static_cast<float>(value));
    if (args.x_dtype == DType::kBF16) {
      h[static_cast<std::size_t>(i)] =
          bf16_to_f32(formats::f32_to_bf16(h[static_cast<std::size_t>(i)]));
    }
  }
  for (std::int64_t n = 0; n < args.hidden; ++n) {
    const double y =
        project(args.down, expert * args.hidden + n, args.intermediate,
                [&](std::int64_t col) { return double{h[static_cast<std::size_t>(col)]}; });
    float& out = args.out[std::int64_t{token} * args.hidden + n];
    out = static_cast<float>(out + args.weights[routed] * y);
  }
}

}  // namespace

Status moe_ref(const MoeArgs& args) {
  for (std::int32_t token = 0; token < args.num_tokens; ++token) {
    for (std::int32_t slot = 0; slot < args.top_k; ++slot) {
      expert_forward(args, token, slot);
    }
  }
  return {};
}

}  // namespace nibble::kernels
