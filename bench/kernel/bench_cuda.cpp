// Speed of the CUDA kernels at the shapes of gpt-oss: one JSON object a line with the median time
// of a launch, and what it moves and computes a second.
//
//   bench_cuda [LEAST]     shapes of at least LEAST rows in all (default: every shape)
//
// Weights and caches rotate over sets that together exceed the L2 cache, so that memory is what is
// measured; launches are replayed from a graph. Weights are random bits of moderate exponent.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/gemm/gemm.h"
#include "kernels/norm/rms_norm.h"
#include "kernels/rope/rope_store.h"
#include "kernels/route/sort_rows.h"
#include "kernels/route/top_k.h"
#include "kernels/sample/sample.h"
#include "tensor/device.h"

namespace {

using nibble::Device;
using nibble::Result;
using nibble::Status;
namespace kernels = nibble::kernels;

template <typename T>
T must(Result<T> result) {
  if (!result) {
    fmt::print(stderr, "bench_cuda: {}\n", result.error().message());
    std::exit(1);
  }
  return std::move(*result);
}
void must(const Status& status) {
  if (!status.ok()) {
    fmt::print(stderr, "bench_cuda: {}\n", status.message());
    std::exit(1);
  }
}

class Bench {
 public:
  Bench() : device_(must(nibble::open_cuda(0))), stream_(must(device_->make_stream())) {
    begin_ = must(device_->make_event());
    end_ = must(device_->make_event());
    // bf16 numbers between 2^-8 and 1 of either sign.
    pattern_.resize(std::size_t{1} << 22U);
    for (std::size_t i = 0; i < pattern_.size(); i += 4) {
      const auto words = kernels::philox(1, i, 0);
      for (std::size_t j = 0; j < 4; ++j) {
        pattern_[i + j] = (words[j] & 0x83FF83FFU) | 0x3C003C00U;
      }
    }
  }

  nibble::Exec exec() { return {.stream = stream_.get(), .device = &device_->facts()}; }

  Device::Memory random(std::int64_t bytes) {
    Device::Memory memory = must(device_->allocate(bytes));
    const auto most = static_cast<std::int64_t>(pattern_.size() * 4);
    for (std::int64_t at = 0; at < bytes; at += most) {
      must(device_->copy(memory.data() + at, pattern_.data(), std::min(most, bytes - at),
                         stream_.get()));
    }
    must(device_->wait(stream_.get()));
    return memory;
  }
  Device::Memory copy(const void* data, std::int64_t bytes) {
    Device::Memory memory = must(device_->allocate(bytes));
    must(device_->copy(memory.data(), data, bytes, stream_.get()));
    must(device_->wait(stream_.get()));
    return memory;
  }

  // Median of one launch(i), i counting the sets.
  double time_us(int sets, const std::function<void(int)>& launch) {
    constexpr int kRounds = 4;
    launch(0);
    must(device_->wait(stream_.get()));
    must(device_->begin_capture(stream_.get()));
    for (int i = 0; i < kRounds * sets; ++i) {
      launch(i % sets);
    }
    const Device::Graph graph = must(device_->end_capture(stream_.get()));
    std::vector<double> times;
    for (int i = 0; i < 12; ++i) {
      must(device_->record(begin_, stream_.get()));
      must(device_->launch(graph, stream_.get()));
      must(device_->record(end_, stream_.get()));
      must(device_->wait(end_));
      times.push_back(must(device_->elapsed_us(begin_, end_)) / (kRounds * sets));
    }
    std::sort(times.begin() + 2, times.end());  // two to warm up
    return times[2 + (times.size() - 2) / 2];
  }

  void report(const char* kernel, const std::string& shape, double us, double bytes, double flops) {
    fmt::print(
        "{{\"kernel\": \"{}\", \"shape\": \"{}\", \"us\": {:.2f}, \"tb_s\": {:.3f}, "
        "\"tflop_s\": {:.1f}}}\n",
        kernel, shape, us, bytes / us / 1e6, flops / us / 1e6);
  }

 private:
  std::unique_ptr<Device> device_;
  Device::OwnedStream stream_;
  Device::Event begin_;
  Device::Event end_;
  std::vector<std::uint32_t> pattern_;
};

struct GemmShape {
  const char* name;
  std::int32_t n;
  std::int32_t k;
};

void bench_gemm(Bench& bench, const GemmShape& shape, std::int32_t least_rows) {
  const std::int64_t weight_bytes = std::int64_t{2} * shape.n * shape.k;
  const int sets = static_cast<int>(std::clamp<std::int64_t>((256 << 20) / weight_bytes, 1, 16));
  std::vector<Device::Memory> weights;
  for (int i = 0; i < sets; ++i) {
    weights.push_back(bench.random(weight_bytes));
  }
  for (const std::int32_t rows : {1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192}) {
    if (rows < least_rows || std::int64_t{rows} * shape.n > std::int64_t{1} << 28U) {
      continue;
    }
    const Device::Memory x = bench.random(std::int64_t{2} * rows * shape.k);
    const Device::Memory out = bench.random(std::int64_t{4} * rows * shape.n);
    for (const auto& row : kernels::gemm_instances()) {
      kernels::GemmPart part{nullptr, nullptr, shape.n};
      const kernels::GemmArgs args{.x = x.data(),
                                   .out = reinterpret_cast<float*>(out.data()),
                                   .parts = {&part, 1},
                                   .rows = rows,
                                   .k = shape.k,
                                   .out_stride = shape.n,
                                   .x_dtype = nibble::DType::kBF16};
      if (row.info.backend != kernels::Backend::kCuda || !row.accepts(args) ||
          std::string(row.info.name) == "gemm_f32_sm90") {
        continue;
      }
      const double us = bench.time_us(sets, [&](int i) {
        part.weight = weights[static_cast<std::size_t>(i)].data();
        must(row.run(args, bench.exec()));
      });
      bench.report(row.info.name, fmt::format("{} {} rows", shape.name, rows), us,
                   static_cast<double>(kernels::gemm_bytes(args)),
                   static_cast<double>(kernels::gemm_flops(args)));
    }
  }
}

struct AttentionShape {
  std::int32_t sequences;
  std::int32_t rows;
  std::int32_t depth;
  std::int32_t window;
};

void bench_attention(Bench& bench, const AttentionShape& shape) {
  constexpr std::int32_t kPage = 64;
  constexpr std::int32_t kHeads = 64;
  constexpr std::int32_t kKvHeads = 8;
  constexpr std::int32_t kDim = 64;
  const std::int32_t length = shape.depth + shape.rows;
  const std::int32_t per_sequence = (length + kPage - 1) / kPage;
  const std::int64_t pages = std::int64_t{per_sequence} * shape.sequences;
  const std::int64_t rows = std::int64_t{shape.sequences} * shape.rows;
  const std::int64_t cache_bytes = pages * kKvHeads * kPage * kDim * 2;
  const int sets = static_cast<int>(std::clamp<std::int64_t>((256 << 20) / cache_bytes, 1, 16));
  std::vector<Device::Memory> caches;
  for (int i = 0; i < 2 * sets; ++i) {
    caches.push_back(bench.random(cache_bytes));
  }
  std::vector<std::int32_t> table;
  for (std::int64_t page = 0; page < pages; ++page) {
    table.push_back(static_cast<std::int32_t>((page * 7919) % pages));
  }
  const Device::Memory table_gpu =
      bench.copy(table.data(), static_cast<std::int64_t>(table.size() * 4));
  std::vector<kernels::AttentionSequence> sequences;
  for (std::int32_t i = 0; i < shape.sequences; ++i) {
    sequences.push_back(
        {.first_row = i * shape.rows,
         .num_rows = shape.rows,
         .first_position = shape.depth,
         .pages = reinterpret_cast<const std::int32_t*>(table_gpu.data()) + i * per_sequence});
  }
  const Device::Memory sequences_gpu = bench.copy(
      sequences.data(), static_cast<std::int64_t>(sequences.size() * sizeof(sequences[0])));
  const Device::Memory q = bench.random(rows * kHeads * kDim * 2);
  const Device::Memory out = bench.random(rows * kHeads * kDim * 2);
  kernels::AttentionArgs args{
      .q = q.data(),
      .out = out.data(),
      .sequences = sequences,
      .device_sequences = reinterpret_cast<const kernels::AttentionSequence*>(sequences_gpu.data()),
      .num_heads = kHeads,
      .num_kv_heads = kKvHeads,
      .head_dim = kDim,
      .page_size = kPage,
      .window = shape.window,
      .scale = 0.125F,
      .q_dtype = nibble::DType::kBF16,
      .kv_dtype = nibble::DType::kBF16};
  const Device::Memory work = bench.random(kernels::attention_workspace_bytes(
      args, static_cast<std::int32_t>(rows), length, bench.exec()));
  args.workspace = {work.data(), static_cast<std::size_t>(work.bytes())};
  double keys = 0.0;  // pairs of query row and key
  for (std::int32_t row = 0; row < shape.rows; ++row) {
    const std::int32_t all = shape.depth + row + 1;
    keys += shape.window == 0 ? all : std::min(all, shape.window);
  }
  const double us = bench.time_us(sets, [&](int i) {
    args.k_cache = caches[static_cast<std::size_t>(2 * i)].data();
    args.v_cache = caches[static_cast<std::size_t>(2 * i) + 1].data();
    must(kernels::attention(args, bench.exec()));
  });
  bench.report("attention",
               fmt::format("{} sequences of {} rows at {}, window {}", shape.sequences, shape.rows,
                           shape.depth, shape.window),
               us, static_cast<double>(kernels::attention_bytes(args)),
               4.0 * keys * kHeads * kDim * shape.sequences);
}

// What stands between the products of a layer; bytes are what has to move.
void report_small(Bench& bench, const char* kernel, std::int32_t rows, double bytes,
                  const std::function<nibble::Status()>& run) {
  bench.report(kernel, fmt::format("{} rows", rows), bench.time_us(1, [&](int) { must(run()); }),
               bytes, 0.0);
}

void bench_norm(Bench& bench, std::int32_t rows) {
  constexpr std::int32_t kHidden = 2880;
  const std::int64_t count = std::int64_t{rows} * kHidden;
  const Device::Memory residual = bench.random(count * 4);
  const Device::Memory weight = bench.random(kHidden * 4);
  const Device::Memory normed = bench.random(count * 2);
  const kernels::RmsNormArgs args{.x = reinterpret_cast<const float*>(residual.data()),
                                  .weight = reinterpret_cast<const float*>(weight.data()),
                                  .out = normed.data(),
                                  .rows = rows,
                                  .cols = kHidden,
                                  .eps = 1e-5F,
                                  .out_dtype = nibble::DType::kBF16};
  report_small(bench, "rms_norm", rows, static_cast<double>(count * 6),
               [&] { return kernels::rms_norm(args, bench.exec()); });
}

void bench_rope(Bench& bench, std::int32_t rows) {
  constexpr std::int32_t kHeads = 64;
  constexpr std::int32_t kKvHeads = 8;
  constexpr std::int32_t kDim = 64;
  const std::int64_t q_elems = std::int64_t{rows} * kHeads * kDim;
  const std::int64_t kv_elems = (std::int64_t{rows} + 63) / 64 * 64 * kKvHeads * kDim;
  const std::int64_t elems = q_elems + std::int64_t{2} * rows * kKvHeads * kDim;
  const Device::Memory qkv = bench.random(elems * 4);
  const Device::Memory q = bench.random(q_elems * 2);
  const Device::Memory k_cache = bench.random(kv_elems * 2);
  const Device::Memory v_cache = bench.random(kv_elems * 2);
  const Device::Memory inv_freq = bench.random(kDim / 2 * 4);
  std::vector<std::int32_t> positions(static_cast<std::size_t>(rows));
  std::vector<std::int64_t> slots(positions.size());
  std::iota(positions.begin(), positions.end(), 0);
  std::iota(slots.begin(), slots.end(), 0);
  const Device::Memory positions_gpu = bench.copy(positions.data(), std::int64_t{4} * rows);
  const Device::Memory slots_gpu = bench.copy(slots.data(), std::int64_t{8} * rows);
  const kernels::RopeStoreArgs args{
      .qkv = reinterpret_cast<const float*>(qkv.data()),
      .positions = reinterpret_cast<const std::int32_t*>(positions_gpu.data()),
      .slots = reinterpret_cast<const std::int64_t*>(slots_gpu.data()),
      .inv_freq = reinterpret_cast<const float*>(inv_freq.data()),
      .q_out = q.data(),
      .k_cache = k_cache.data(),
      .v_cache = v_cache.data(),
      .rows = rows,
      .num_heads = kHeads,
      .num_kv_heads = kKvHeads,
      .head_dim = kDim,
      .page_size = 64,
      .q_dtype = nibble::DType::kBF16,
      .kv_dtype = nibble::DType::kBF16};
  report_small(bench, "rope_store", rows, static_cast<double>(elems * 6),
               [&] { return kernels::rope_store(args, bench.exec()); });
}

void bench_routing(Bench& bench, std::int32_t rows) {
  constexpr std::int32_t kExperts = 32;
  constexpr std::int32_t kTopK = 4;
  const std::int64_t bytes = std::int64_t{4} * rows * kTopK;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(rows) * kTopK);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<std::int32_t>(kernels::philox(3, i, 0)[0] % kExperts);
  }
  const Device::Memory ids_gpu = bench.copy(ids.data(), bytes);
  const Device::Memory offs = bench.random(4 * (kExperts + 1));
  const Device::Memory gather = bench.random(bytes);
  const Device::Memory scatter = bench.random(bytes);
  const kernels::SortRowsArgs sort{.ids = reinterpret_cast<const std::int32_t*>(ids_gpu.data()),
                                   .slice_offs = reinterpret_cast<std::int32_t*>(offs.data()),
                                   .gather = reinterpret_cast<std::int32_t*>(gather.data()),
                                   .scatter = reinterpret_cast<std::int32_t*>(scatter.data()),
                                   .num_tokens = rows,
                                   .top_k = kTopK,
                                   .num_experts = kExperts};
  report_small(bench, "sort_rows", rows, static_cast<double>(3 * bytes),
               [&] { return kernels::sort_rows(sort, bench.exec()); });
  const Device::Memory logits = bench.random(std::int64_t{4} * rows * kExperts);
  const kernels::TopKArgs top{.logits = reinterpret_cast<const float*>(logits.data()),
                              .ids = reinterpret_cast<std::int32_t*>(gather.data()),
                              .weights = reinterpret_cast<float*>(scatter.data()),
                              .rows = rows,
                              .num_valid_rows = rows,
                              .num_experts = kExperts,
                              .top_k = kTopK};
  report_small(bench, "top_k", rows,
               static_cast<double>(std::int64_t{4} * rows * kExperts + 2 * bytes),
               [&] { return kernels::top_k(top, bench.exec()); });
}

}  // namespace

int main(int argc, char** argv) {
  const std::int32_t least_rows = argc > 1 ? std::atoi(argv[1]) : 0;
  Bench bench;
  for (const GemmShape& shape : {GemmShape{"qkv", 5120, 2880}, GemmShape{"o", 2880, 4096},
                                 GemmShape{"router", 128, 2880}, GemmShape{"head", 201088, 2880}}) {
    bench_gemm(bench, shape, least_rows);
  }
  for (const AttentionShape& shape :
       {AttentionShape{1, 1, 1024, 0}, AttentionShape{1, 1, 1024, 128},
        AttentionShape{1, 1, 32768, 0}, AttentionShape{64, 1, 1024, 0},
        AttentionShape{64, 1, 8192, 0}, AttentionShape{256, 1, 1500, 128},
        AttentionShape{1, 512, 0, 0}, AttentionShape{1, 1024, 0, 0},
        AttentionShape{1, 1024, 0, 128}, AttentionShape{1, 4096, 0, 0},
        AttentionShape{1, 4096, 0, 128}, AttentionShape{1, 8192, 0, 0},
        AttentionShape{1, 8192, 0, 128}, AttentionShape{8, 8192, 0, 0},
        AttentionShape{8, 8192, 0, 128}, AttentionShape{1, 4096, 28672, 0}}) {
    if (shape.sequences * shape.rows >= least_rows) {
      bench_attention(bench, shape);
    }
  }
  for (const std::int32_t rows : {1, 1024, 8192}) {
    if (rows >= least_rows) {
      bench_norm(bench, rows);
      bench_rope(bench, rows);
      bench_routing(bench, rows);
    }
  }
}
