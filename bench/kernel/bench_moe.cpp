#include <numeric>

#include "kernel/bench.h"
#include "kernels/moe/moe.h"
#include "tensor/buffer.h"

namespace nibble::bench {
namespace {

struct Shape {
  const char* name;
  std::int32_t tokens;
  std::int32_t hidden;
  std::int32_t intermediate;
  std::int32_t experts;
};

constexpr std::int32_t kTopK = 4;
constexpr Shape kShapes[] = {
    {"gptoss20b_decode_b1", 1, 2880, 2880, 32},     {"gptoss20b_decode_b4", 4, 2880, 2880, 32},
    {"gptoss20b_decode_b16", 16, 2880, 2880, 32},   {"gptoss20b_prefill_128", 128, 2880, 2880, 32},
    {"gptoss20b_prefill_512", 512, 2880, 2880, 32}, {"demo_decode_b1", 1, 320, 192, 16},
    {"demo_prefill_512", 512, 320, 192, 16},
};

struct Inputs {
  const char* name;
  DType dtype;
  kernels::ExpertInputs kept;
};
constexpr Inputs kInputs[] = {{"bf16", DType::kBF16, kernels::ExpertInputs::kGiven},
                              {"int8", DType::kBF16, kernels::ExpertInputs::kInt8},
                              {"f32", DType::kF32, kernels::ExpertInputs::kGiven}};

// Random codes with scales about the inverse root of the depth.
struct Matrix {
  Matrix(std::int64_t rows, std::int64_t cols, std::uint64_t seed)
      : blocks(static_cast<std::size_t>(rows * cols / 2)),
        scales(static_cast<std::size_t>(rows * cols / 32)),
        bias(static_cast<std::size_t>(rows)) {
    Random random(seed);
    for (std::uint8_t& pair : blocks) {
      pair = static_cast<std::uint8_t>(random.bits() >> 32U);
    }
    for (std::uint8_t& scale : scales) {
      scale = static_cast<std::uint8_t>(119 + random.bits() % 3);
    }
  }
  kernels::ExpertMatrix args() const {
    return {kernels::Mxfp4Rows{blocks.data(), scales.data()}, bias.data()};
  }
  std::vector<std::uint8_t> blocks;
  std::vector<std::uint8_t> scales;
  std::vector<formats::Bf16> bias;
};

// Distinct experts for each token, others in each round.
std::vector<std::int32_t> random_ids(const Shape& shape, std::int32_t rounds) {
  Random random(7);
  std::vector<std::int32_t> experts(static_cast<std::size_t>(shape.experts));
  std::iota(experts.begin(), experts.end(), 0);
  std::vector<std::int32_t> ids;
  for (std::int64_t token = 0; token < std::int64_t{rounds} * shape.tokens; ++token) {
    for (std::size_t slot = 0; slot < kTopK; ++slot) {
      std::swap(experts[slot], experts[slot + (random.bits() >> 20U) % (experts.size() - slot)]);
      ids.push_back(experts[slot]);
    }
  }
  return ids;
}

}  // namespace

void bench_moe(const Options& options, ThreadPool& pool) {
  constexpr std::int32_t kRounds = 16;
  for (const Shape& shape : kShapes) {
    const Matrix gate_up(std::int64_t{2} * shape.experts * shape.intermediate, shape.hidden, 1);
    const Matrix down(std::int64_t{shape.experts} * shape.hidden, shape.intermediate, 2);
    const auto ids = random_ids(shape, kRounds);
    const std::vector<float> weights(static_cast<std::size_t>(shape.tokens * kTopK), 0.25F);
    std::vector<float> out(static_cast<std::size_t>(shape.tokens * shape.hidden));
    for (const Inputs& inputs : kInputs) {
      const DType dtype = inputs.dtype;
      const auto x = random_values(std::int64_t{shape.tokens} * shape.hidden, dtype, 3);
      kernels::MoeArgs args{.x = x.data(),
                            .ids = ids.data(),
                            .weights = weights.data(),
                            .out = out.data(),
                            .gate_up = gate_up.args(),
                            .down = down.args(),
                            .num_tokens = shape.tokens,
                            .hidden = shape.hidden,
                            .intermediate = shape.intermediate,
                            .num_experts = shape.experts,
                            .top_k = kTopK,
                            .x_dtype = dtype,
                            .inputs = inputs.kept};
      Buffer<std::byte> workspace(
          static_cast<std::size_t>(kernels::moe_workspace_bytes(args, shape.tokens)));
      args.workspace = workspace.span();
      bench_rows<kernels::MoeArgs>(
          kernels::moe_instances(), fmt::format("{}_x{}", shape.name, inputs.name), options, pool,
          args, {kernels::moe_bytes(args), kernels::moe_flops(args)},
          [&](kernels::MoeArgs& changed, int call) {
            changed.ids = ids.data() + std::int64_t{call % kRounds} * shape.tokens * kTopK;
          });
    }
  }
}

}  // namespace nibble::bench
