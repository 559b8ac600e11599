#include "kernel/bench.h"
#include "kernels/gemm/gemm.h"

namespace nibble::bench {
namespace {

struct Shape {
  const char* name;
  std::int32_t rows;
  std::int32_t k;
  std::int32_t n;
};

// Several copies of a small weight, so that each call reads from memory.
constexpr std::int64_t kWeightBytes = 192 << 20;

constexpr Shape kShapes[] = {
    {"gptoss20b_qkv_b1", 1, 2880, 5120},    {"gptoss20b_qkv_b4", 4, 2880, 5120},
    {"gptoss20b_qkv_b8", 8, 2880, 5120},    {"gptoss20b_out_b1", 1, 4096, 2880},
    {"gptoss20b_head_b1", 1, 2880, 32768},  {"gptoss20b_router_b1", 1, 2880, 32},
    {"gptoss20b_qkv_512", 512, 2880, 5120}, {"demo_qkv_b1", 1, 320, 640},
    {"demo_head_b1", 1, 320, 4096},         {"demo_qkv_512", 512, 320, 640},
};

}  // namespace

void bench_gemm(const Options& options, ThreadPool& pool) {
  for (const Shape& shape : kShapes) {
    const std::int64_t elems = std::int64_t{shape.n} * shape.k;
    const bool is_demo = std::string(shape.name).starts_with("demo");  // whose weights stay cached
    const std::int64_t copies = is_demo ? 1 : std::max<std::int64_t>(1, kWeightBytes / (2 * elems));
    const auto weights = random_values(copies * elems, DType::kBF16, 1);
    std::vector<float> out(static_cast<std::size_t>(std::int64_t{shape.rows} * shape.n));
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      const auto x = random_values(std::int64_t{shape.rows} * shape.k, dtype, 2);
      kernels::GemmPart part{weights.data(), nullptr, shape.n};
      kernels::GemmArgs args{.x = x.data(),
                             .out = out.data(),
                             .parts = {&part, 1},
                             .rows = shape.rows,
                             .k = shape.k,
                             .out_stride = shape.n,
                             .x_dtype = dtype};
      bench_rows<kernels::GemmArgs>(
          kernels::gemm_instances(), fmt::format("{}_x{}", shape.name, dtype_name(dtype)), options,
          pool, args, {kernels::gemm_bytes(args), kernels::gemm_flops(args)},
          [&](kernels::GemmArgs&, int call) {
            part.weight = weights.data() + call % copies * elems * 2;
          });
    }
  }
}

}  // namespace nibble::bench
