// Speed of the persistent decode kernel at gpt-oss shapes, with weights made on the device: one
// JSON object a line with the median time of a step, what it reads a second, and where block 0
// spent it.
//
//   bench_decode_cuda 20b|120b DEPTH...
//
// Weights are random bits of moderate exponent; every step takes another token, and so other
// experts. A step is replayed from a graph with the fill of its exchange.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "formats/expert_tiles.h"
#include "kernels/decode/decode_step.h"
#include "kernels/sample/sample.h"
#include "tensor/arena.h"
#include "tensor/device.h"

namespace {

using nibble::Arena;
using nibble::Device;
using nibble::Result;
using nibble::Status;
using nibble::formats::Bf16;
namespace kernels = nibble::kernels;

template <typename T>
T must(Result<T> result) {
  if (!result) {
    fmt::print(stderr, "bench_decode_cuda: {}\n", result.error().message());
    std::exit(1);
  }
  return std::move(*result);
}
void must(const Status& status) {
  if (!status.ok()) {
    fmt::print(stderr, "bench_decode_cuda: {}\n", status.message());
    std::exit(1);
  }
}

constexpr std::int32_t kPageSize = 64;
constexpr std::int32_t kWindow = 128;

// Random words with some bits held, repeated over the device memory that is asked for.
class Filler {
 public:
  Filler(Device& device, nibble::Stream stream) : device_(device), stream_(stream) {
    words_.resize(std::size_t{1} << 22U);
    for (std::size_t i = 0; i < words_.size(); i += 4) {
      const auto random = kernels::philox(7, i, 0);
      std::copy(random.begin(), random.end(), words_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  void fill(const void* to, std::int64_t bytes, std::uint32_t keep, std::uint32_t set) {
    std::vector<std::uint32_t> words(words_);
    for (std::uint32_t& word : words) {
      word = (word & keep) | set;
    }
    auto* at = static_cast<std::byte*>(const_cast<void*>(to));
    // An odd number of words, so that rows differ.
    const std::int64_t most = static_cast<std::int64_t>(words.size() * 4) - 4;
    must(device_.copy(at, words.data(), std::min(most, bytes), stream_));
    must(device_.wait(stream_));
    for (std::int64_t done = most; done < bytes; done *= 2) {
      must(device_.copy(at + done, at, std::min(done, bytes - done), stream_));
    }
    must(device_.wait(stream_));
  }

 private:
  Device& device_;
  nibble::Stream stream_;
  std::vector<std::uint32_t> words_;
};

struct Weights {
  std::vector<kernels::DecodeLayer> layers;
  kernels::DecodeStepArgs args;
  std::int32_t* pages = nullptr;
  kernels::AttentionSequence* sequence = nullptr;
  std::int64_t* slot = nullptr;
  // What each kind of bytes is filled with.
  struct Part {
    const void* at;
    std::int64_t bytes;
    std::uint32_t keep;
    std::uint32_t set;
  };
  std::vector<Part> parts;
};

class Placer {
 public:
  Placer(Weights& weights, Arena& arena) : weights_(weights), arena_(arena) {}

  // bf16 of about 2^-6.
  const Bf16* matrix(std::int64_t rows, std::int64_t cols) {
    return part<Bf16>(rows * cols, 0x80FF80FFU, 0x3C003C00U);
  }
  const float* vector(std::int64_t count) { return part<float>(count, 0x80FFFFFFU, 0x3C000000U); }
  const float* ones(std::int64_t count) { return part<float>(count, 0U, 0x3F800000U); }
  kernels::Mxfp4Tiles tiles(std::int64_t experts, std::int64_t rows, std::int64_t cols) {
    const auto extent = nibble::formats::expert_tile_extent(nibble::formats::LogicalRows(rows),
                                                            nibble::formats::LogicalCols(cols));
    return {.values = part<std::uint8_t>(experts * extent.value_bytes(), ~0U, 0U),
            .scales = part<std::uint8_t>(experts * extent.scale_bytes(), 0x03030303U, 0x78787878U),
            .factors = ones(experts),
            .bias = matrix(experts, rows)};
  }

 private:
  template <typename T>
  const T* part(std::int64_t count, std::uint32_t keep, std::uint32_t set) {
    const T* at = arena_.take<T>(count);
    weights_.parts.push_back({at, count * static_cast<std::int64_t>(sizeof(T)), keep, set});
    return at;
  }
  Weights& weights_;
  Arena& arena_;
};

Weights place(const kernels::DecodeSizes& sizes, std::int32_t num_pages, Arena& arena) {
  Weights out;
  Placer place(out, arena);
  out.args.sizes = sizes;
  out.args.embedding = place.matrix(sizes.vocab, sizes.hidden);
  out.args.head = place.matrix(sizes.vocab, sizes.hidden);
  out.args.final_norm = place.ones(sizes.hidden);
  out.args.inv_freq = place.vector(32);
  out.args.token_id = arena.take<std::int32_t>(1);
  out.args.position = arena.take<std::int32_t>(1);
  out.args.logits = arena.take<float>(sizes.vocab);
  out.args.bad_rows = arena.take<std::int32_t>(sizes.num_layers + 1);
  out.args.lost = out.args.bad_rows + sizes.num_layers;
  out.args.exchange = arena.take<std::uint32_t>(kernels::decode_step_exchange_bytes(sizes) / 4);
  out.args.marks = arena.take<std::int64_t>(sizes.num_layers * kernels::kDecodeMarks + 2);
  out.pages = arena.take<std::int32_t>(num_pages);
  out.sequence = arena.take<kernels::AttentionSequence>(1);
  out.slot = arena.take<std::int64_t>(1);
  const std::int64_t kv = std::int64_t{num_pages} * kPageSize * sizes.num_kv_heads;
  for (std::int32_t i = 0; i < sizes.num_layers; ++i) {
    kernels::DecodeLayer layer;
    layer.attention_norm = place.ones(sizes.hidden);
    layer.qkv = place.matrix(sizes.qkv_width(), sizes.hidden);
    layer.qkv_bias = place.vector(sizes.qkv_width());
    layer.sinks = place.vector(sizes.num_heads);
    layer.o = place.matrix(sizes.hidden, sizes.q_width());
    layer.o_bias = place.vector(sizes.hidden);
    layer.mlp_norm = place.ones(sizes.hidden);
    layer.router = place.matrix(sizes.num_experts, sizes.hidden);
    layer.router_bias = place.vector(sizes.num_experts);
    layer.gate_up =
        place.tiles(sizes.num_experts, 2 * std::int64_t{sizes.intermediate}, sizes.hidden);
    layer.down = place.tiles(sizes.num_experts, sizes.hidden, sizes.intermediate);
    layer.k_cache = const_cast<Bf16*>(place.matrix(kv, 64));
    layer.v_cache = const_cast<Bf16*>(place.matrix(kv, 64));
    layer.window = i % 2 == 0 ? kWindow : 0;
    out.layers.push_back(layer);
  }
  out.args.caches[0] = {out.sequence, out.slot};
  return out;
}

class Bench {
 public:
  Bench(const kernels::DecodeSizes& sizes, std::int32_t max_depth)
      : device_(must(nibble::open_cuda(0))), stream_(must(device_->make_stream())) {
    kernels::DecodeSizes used = sizes;
    used.num_blocks = device_->facts().num_sms;
    const std::int32_t num_pages = max_depth / kPageSize + 1;
    Arena measured;
    (void)place(used, num_pages, measured);
    memory_ = must(device_->allocate(measured.bytes()));
    Arena arena(memory_.data());
    weights_ = place(used, num_pages, arena);
    weights_.args.layers = weights_.layers;
    Filler filler(*device_, stream_.get());
    for (const Weights::Part& part : weights_.parts) {
      filler.fill(part.at, part.bytes, part.keep, part.set);
    }
    std::vector<std::int32_t> pages(static_cast<std::size_t>(num_pages));
    for (std::size_t i = 0; i < pages.size(); ++i) {
      pages[i] = static_cast<std::int32_t>(pages.size() - 1 - i);
    }
    put(weights_.pages, pages.data(), num_pages);
    const kernels::AttentionSequence sequence{.num_rows = 1, .pages = weights_.pages};
    put(weights_.sequence, &sequence, 1);
    num_pages_ = num_pages;
  }

  void run(const std::string& name, std::int32_t depth) {
    const kernels::DecodeSizes& sizes = weights_.args.sizes;
    put(weights_.args.position, &depth, 1);
    const std::int64_t slot =
        std::int64_t{num_pages_ - 1 - depth / kPageSize} * kPageSize + depth % kPageSize;
    put(weights_.slot, &slot, 1);
    must(device_->fill(weights_.args.bad_rows, 0x7F, 4 * (sizes.num_layers + 1), stream_.get()));
    std::vector<double> times;
    kernels::DecodeStepArgs args = weights_.args;
    args.marks = nullptr;
    step(args, 0);
    must(device_->wait(stream_.get()));
    must(device_->begin_capture(stream_.get()));
    enqueue(args);
    const Device::Graph graph = must(device_->end_capture(stream_.get()));
    const Device::Event begin = must(device_->make_event());
    const Device::Event end = must(device_->make_event());
    constexpr int kRuns = 200;
    for (int i = 0; i < kRuns; ++i) {
      const std::int32_t id = (i * 977 + 13) % sizes.vocab;
      put(weights_.args.token_id, &id, 1);
      must(device_->record(begin, stream_.get()));
      must(device_->launch(graph, stream_.get()));
      must(device_->record(end, stream_.get()));
      must(device_->wait(end));
      times.push_back(must(device_->elapsed_us(begin, end)));
    }
    std::sort(times.begin(), times.end());
    const double us = times[times.size() / 2];
    std::array<double, kernels::kDecodeMarks + 1> shares = phases();
    const auto bytes = static_cast<double>(kernels::decode_step_bytes(weights_.args, depth));
    fmt::print(
        "{{\"kernel\": \"decode_step_bf16_mxfp4_sm90\", \"shape\": \"{} depth {}\", "
        "\"us\": {:.1f}, \"us_p5\": {:.1f}, \"us_p95\": {:.1f}, \"tok_s\": {:.1f}, "
        "\"mb\": {:.1f}, \"tb_s\": {:.3f}, \"layer_cycles\": [{}], \"lost\": {}}}\n",
        name, depth, us, times[times.size() / 20], times[times.size() * 19 / 20], 1e6 / us,
        bytes / 1e6, bytes / us / 1e6, join(shares), lost());
  }

 private:
  template <typename T>
  void put(const T* to, const T* from, std::int64_t count) {
    must(device_->copy(const_cast<T*>(to), from, count * static_cast<std::int64_t>(sizeof(T)),
                       stream_.get()));
    must(device_->wait(stream_.get()));
  }
  void enqueue(const kernels::DecodeStepArgs& args) {
    must(device_->fill(args.exchange, 0xFF, kernels::decode_step_exchange_bytes(args.sizes),
                       stream_.get()));
    must(kernels::decode_step(args, {.stream = stream_.get(), .device = &device_->facts()}));
  }
  void step(const kernels::DecodeStepArgs& args, std::int32_t id) {
    put(args.token_id, &id, 1);
    enqueue(args);
  }
  int lost() {
    std::int32_t flag = 0;
    must(device_->copy(&flag, weights_.args.lost, 4, stream_.get()));
    must(device_->wait(stream_.get()));
    return flag == 0x7F7F7F7F ? 0 : 1;
  }

  // Mean cycles of each part of a layer (from the layer before's end), then of the head.
  std::array<double, kernels::kDecodeMarks + 1> phases() {
    const std::int32_t layers = weights_.args.sizes.num_layers;
    std::vector<std::int64_t> marks(static_cast<std::size_t>(layers * kernels::kDecodeMarks + 2));
    std::array<double, kernels::kDecodeMarks + 1> sums{};
    constexpr int kRuns = 20;
    for (int run = 0; run < kRuns; ++run) {
      step(weights_.args, 977 * run + 5);
      must(device_->copy(marks.data(), weights_.args.marks,
                         static_cast<std::int64_t>(marks.size() * 8), stream_.get()));
      must(device_->wait(stream_.get()));
      // The first layer has no layer before.
      for (std::size_t i = kernels::kDecodeMarks; i + 2 < marks.size(); ++i) {
        sums[i % kernels::kDecodeMarks] +=
            static_cast<double>(marks[i] - marks[i - 1]) / (layers - 1) / kRuns;
      }
      sums[kernels::kDecodeMarks] +=
          static_cast<double>(marks.back() - marks[marks.size() - 2]) / kRuns;
    }
    return sums;
  }
  static std::string join(const std::array<double, kernels::kDecodeMarks + 1>& values) {
    std::string out;
    for (const double value : values) {
      out += fmt::format("{}{:.0f}", out.empty() ? "" : ", ", value);
    }
    return out;
  }

  std::unique_ptr<Device> device_;
  Device::OwnedStream stream_;
  Device::Memory memory_;
  Weights weights_;
  std::int32_t num_pages_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  if ((name != "20b" && name != "120b") || argc < 3) {
    fmt::print(stderr, "usage: bench_decode_cuda 20b|120b DEPTH...\n");
    return 2;
  }
  const kernels::DecodeSizes sizes{.num_layers = name == "20b" ? 24 : 36,
                                   .hidden = 2880,
                                   .intermediate = 2880,
                                   .num_experts = name == "20b" ? 32 : 128,
                                   .top_k = 4,
                                   .num_heads = 64,
                                   .num_kv_heads = 8,
                                   .page_size = kPageSize,
                                   .vocab = 201088};
  std::int32_t deepest = 0;
  for (int i = 2; i < argc; ++i) {
    deepest = std::max(deepest, std::atoi(argv[i]));
  }
  Bench bench(sizes, deepest);
  for (int i = 2; i < argc; ++i) {
    bench.run(name, std::atoi(argv[i]));
  }
  return 0;
}
