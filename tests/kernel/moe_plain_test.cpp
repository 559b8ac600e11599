// Experts in rows as published, on a GPU.
#include <fmt/format.h>

#include <memory>

#include "kernel/gpu.h"
#include "kernels/moe/moe.h"
#include "unit/kernels/moe_case.h"

namespace nibble::kernels {
namespace {

using MoeRowsOnGpu = GpuTest;

// A matrix in device memory.
struct GpuMatrix {
  explicit GpuMatrix(const MoeMatrix& matrix)
      : blocks(matrix.blocks), scales(matrix.scales), bf16(matrix.bf16), bias(matrix.bias) {
    args.bias = bias.data<formats::Bf16>();
    if (matrix.form == ExpertForm::kMxfp4) {
      args.weight = Mxfp4Rows{blocks.data<std::uint8_t>(), scales.data<std::uint8_t>()};
    } else {
      args.weight = Bf16Rows{bf16.data<formats::Bf16>()};
    }
  }
  OnGpu blocks;
  OnGpu scales;
  OnGpu bf16;
  OnGpu bias;
  ExpertMatrix args;
};

class GpuCase {
 public:
  GpuCase(MoeShape shape, DType dtype)
      : input(shape, dtype),
        gate_up_(input.gate_up),
        down_(input.down),
        x_(input.x.data(), std::int64_t{shape.tokens} * shape.hidden * dtype_bits(dtype) / 8),
        ids_(input.ids),
        weights_(input.weights),
        out(input.start),
        workspace_(moe_workspace_bytes(host_args(), shape.tokens)) {}

  MoeArgs host_args() { return input.args(host_out_); }
  MoeArgs args() {
    MoeArgs args = host_args();
    args.x = x_.data();
    args.ids = ids_.data<std::int32_t>();
    args.weights = weights_.data<float>();
    args.out = out.data<float>();
    args.gate_up = gate_up_.args;
    args.down = down_.args;
    args.workspace = {workspace_.data<std::byte>(), static_cast<std::size_t>(workspace_.bytes())};
    return args;
  }
  void reset() { out.set(input.start.data()); }

  MoeCase input;

 private:
  std::vector<float> host_out_;
  GpuMatrix gate_up_;
  GpuMatrix down_;
  OnGpu x_;
  OnGpu ids_;
  OnGpu weights_;

 public:
  OnGpu out;

 private:
  OnGpu workspace_;
};

TEST_F(MoeRowsOnGpu, AgreeWithTheDecodedWeights) {
  const MoeShape shapes[] = {
      {.tokens = 0},
      {.tokens = 1},
      {.tokens = 2, .hidden = 64, .intermediate = 96},
      {.tokens = 5, .hidden = 320, .intermediate = 192, .experts = 16, .top_k = 4},
      {.tokens = 33, .routing = Routing::kAllToTheLast},
      {.tokens = 9, .routing = Routing::kNeverTheFirst},
      {.tokens = 3, .hidden = 2080, .intermediate = 32}};
  for_each_cuda(moe_instances(), [&](const Instance<MoeArgs>& row) {
    for (MoeShape shape : shapes) {
      for (const ExpertForm form : {ExpertForm::kMxfp4, ExpertForm::kBf16}) {
        for (const DType dtype : kActivationDtypes) {
          shape.form = form;
          GpuCase gpu_case(shape, dtype);
          const MoeArgs args = gpu_case.args();
          if (!row.accepts(args)) {
            continue;
          }
          ASSERT_TRUE(row.run(args, on_gpu()).ok());
          std::vector<float> want;
          const auto bounds = gpu_case.input.bounds(&want);
          testing_support::expect_close(
              gpu_case.out.values<float>(), want, bounds,
              fmt::format("{} tokens, {} x {}, {}, {}", shape.tokens, shape.hidden,
                          shape.intermediate, form_name(form), dtype_name(dtype)));
        }
      }
    }
  });
}

TEST_F(MoeRowsOnGpu, GiveTheSameBitsEveryTime) {
  for_each_cuda(moe_instances(), [&](const Instance<MoeArgs>& row) {
    for (const ExpertForm form : {ExpertForm::kMxfp4, ExpertForm::kBf16}) {
      GpuCase gpu_case({.tokens = 5,
                        .hidden = 320,
                        .intermediate = 192,
                        .experts = 16,
                        .top_k = 4,
                        .form = form},
                       DType::kBF16);
      const MoeArgs args = gpu_case.args();
      ASSERT_TRUE(row.accepts(args));
      expect_same_bits_every_time(gpu_case.out, [&] {
        gpu_case.reset();  // results are added
        ASSERT_TRUE(row.run(args, on_gpu()).ok());
      });
    }
  });
}

}  // namespace
}  // namespace nibble::kernels
