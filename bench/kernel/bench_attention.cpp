#include <cmath>
#include <numeric>

#include "kernel/bench.h"
#include "kernels/attention/attention.h"
#include "tensor/buffer.h"

namespace nibble::bench {
namespace {

struct Shape {
  const char* name;
  std::int32_t rows;
  std::int32_t depth;  // positions before the first row
  std::int32_t heads;
  std::int32_t kv_heads;
  std::int32_t window;
};

constexpr std::int32_t kHeadDim = 64;
constexpr std::int32_t kPageSize = 64;
constexpr Shape kShapes[] = {
    {"gptoss_full_b1_d1024", 1, 1024, 64, 8, 0},
    {"gptoss_full_b1_d8192", 1, 8192, 64, 8, 0},
    {"gptoss_full_b1_d32768", 1, 32768, 64, 8, 0},
    {"gptoss_window_b1_d8192", 1, 8192, 64, 8, 128},
    {"gptoss_full_prefill_512", 512, 0, 64, 8, 0},
    {"gptoss_window_prefill_512", 512, 2048, 64, 8, 128},
    {"demo_full_b1_d512", 1, 512, 8, 1, 0},
};

// Two products of head_dim for each query head and key seen.
std::int64_t flops_of(const Shape& shape) {
  std::int64_t keys = 0;
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    const std::int64_t seen = shape.depth + row + 1;
    keys += shape.window == 0 ? seen : std::min<std::int64_t>(seen, shape.window);
  }
  return 4 * keys * shape.heads * kHeadDim;
}

void bench_shape(const Shape& shape, DType dtype, const Options& options, ThreadPool& pool) {
  const std::int32_t pages = (shape.depth + shape.rows + kPageSize - 1) / kPageSize;
  const std::int64_t cache_elems = std::int64_t{pages} * kPageSize * shape.kv_heads * kHeadDim;
  const std::int64_t q_elems = std::int64_t{shape.rows} * shape.heads * kHeadDim;
  const auto q = random_values(q_elems, dtype, 1);
  const auto k = random_values(cache_elems, dtype, 2);
  const auto v = random_values(cache_elems, dtype, 3);
  const std::vector<float> sinks(static_cast<std::size_t>(shape.heads), 0.5F);
  std::vector<std::byte> out(q.size());
  std::vector<std::int32_t> page_ids(static_cast<std::size_t>(pages));
  std::iota(page_ids.rbegin(), page_ids.rend(), 0);
  const kernels::AttentionSequence sequence{
      .num_rows = shape.rows, .first_position = shape.depth, .pages = page_ids.data()};
  kernels::AttentionArgs args{.q = q.data(),
                              .k_cache = k.data(),
                              .v_cache = v.data(),
                              .sinks = sinks.data(),
                              .out = out.data(),
                              .sequences = {&sequence, 1},
                              .num_heads = shape.heads,
                              .num_kv_heads = shape.kv_heads,
                              .head_dim = kHeadDim,
                              .page_size = kPageSize,
                              .window = shape.window,
                              .scale = 1.0F / std::sqrt(static_cast<float>(kHeadDim)),
                              .q_dtype = dtype,
                              .kv_dtype = dtype};
  Buffer<std::byte> workspace(static_cast<std::size_t>(
      kernels::attention_workspace_bytes(args, shape.rows, shape.depth + shape.rows, {&pool})));
  args.workspace = workspace.span();
  bench_rows<kernels::AttentionArgs>(kernels::attention_instances(),
                                     fmt::format("{}_{}", shape.name, dtype_name(dtype)), options,
                                     pool, args, {kernels::attention_bytes(args), flops_of(shape)},
                                     [](kernels::AttentionArgs&, int) {});
}

}  // namespace

void bench_attention(const Options& options, ThreadPool& pool) {
  for (const Shape& shape : kShapes) {
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      bench_shape(shape, dtype, options, pool);
    }
  }
}

}  // namespace nibble::bench
