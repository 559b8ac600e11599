// Speed of the CUDA kernels at the shapes of gpt-oss: one JSON object a line with the median time
// of a launch, and what it moves and computes a second.
//
// Weights and caches rotate over sets that together exceed the L2 cache, so that memory is what is
// measured; launches are replayed from a graph. Weights are random bits of moderate exponent.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/gemm/gemm.h"
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

void bench_gemm(Bench& bench, const GemmShape& shape) {
  const std::int64_t weight_bytes = std::int64_t{2} * shape.n * shape.k;
  const int sets = static_cast<int>(std::clamp<std::int64_t>((256 << 20) / weight_bytes, 1, 16));
  std::vector<Device::Memory> weights;
  for (int i = 0; i < sets; ++i) {
    weights.push_back(bench.random(weight_bytes));
  }
  for (const std::int32_t rows : {1, 4, 16, 64, 256, 2048}) {
    if (std::int64_t{rows} * shape.n > std::int64_t{1} << 28U) {
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

}  // namespace

int main() {
  Bench bench;
  for (const GemmShape& shape : {GemmShape{"qkv", 5120, 2880}, GemmShape{"o", 2880, 4096},
                                 GemmShape{"router", 128, 2880}, GemmShape{"head", 201088, 2880}}) {
    bench_gemm(bench, shape);
  }
  for (const AttentionShape& shape :
       {AttentionShape{1, 1, 1024, 0}, AttentionShape{1, 1, 1024, 128},
        AttentionShape{1, 1, 32768, 0}, AttentionShape{64, 1, 1024, 0},
        AttentionShape{64, 1, 8192, 0}, AttentionShape{256, 1, 1500, 128},
        AttentionShape{1, 1024, 0, 0}, AttentionShape{1, 8192, 0, 0},
        AttentionShape{1, 8192, 0, 128}}) {
    bench_attention(bench, shape);
  }
}
