// Checks and times the MXFP4 expert products of a GPU on their own:
//
//   bench_moe_cuda check [seed]     every kernel against a double-precision product on the device,
//                                   on edge sizes and ragged batches; repeats, bit for bit
//   bench_moe_cuda profile KERNEL EXPERTS TOKENS   one run, for a profiler
//   bench_moe_cuda time [records [tokens...]]   gpt-oss shapes, both products and the combine of
//   one layer,
//                                   replayed from a graph of several routings; JSON lines in a file
//
// Weights are random bits from a seed, never zeros; outputs are poisoned before every run.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/convert/device/expert_tiles.cuh"
#include "kernels/moe/moe_tiles_launch.cuh"

namespace nibble::kernels {
namespace {

using namespace device;
using nibble::formats::ExpertTileExtent;
using nibble::formats::LogicalCols;
using nibble::formats::LogicalRows;

void check_cuda(cudaError_t code, int line) {
  if (code != cudaSuccess) {
    std::printf("line %d: %s\n", line, cudaGetErrorString(code));
    std::exit(2);
  }
}
#define CHECK_CUDA(call) check_cuda((call), __LINE__)

template <typename T>
struct DeviceArray {
  explicit DeviceArray(std::size_t count) : size(count) {
    CHECK_CUDA(cudaMalloc(&data, std::max<std::size_t>(count, 1) * sizeof(T)));
  }
  explicit DeviceArray(const std::vector<T>& from) : DeviceArray(from.size()) {
    CHECK_CUDA(cudaMemcpy(data, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  DeviceArray(DeviceArray&& other) noexcept : data(other.data), size(other.size) {
    other.data = nullptr;
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data); }
  std::vector<T> copy() const {
    std::vector<T> out(size);
    CHECK_CUDA(cudaMemcpy(out.data(), data, size * sizeof(T), cudaMemcpyDeviceToHost));
    return out;
  }
  T* data = nullptr;
  std::size_t size = 0;
};

__host__ __device__ std::uint64_t mix(std::uint64_t z) {
  z += 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31U);
}

// Uniform in -1..1, of 24 bits.
__device__ float draw(std::uint64_t seed, std::uint64_t i) {
  return static_cast<float>(static_cast<std::int64_t>(mix(seed ^ mix(i)) >> 40U)) * 0x1p-23F - 1.0F;
}

// Makers of one element: random bytes, scale bytes of 116..125, values of -limit..limit.
struct RandomBytes {
  std::uint8_t* to;
  std::uint64_t seed;
  __device__ void operator()(std::int64_t i) const {
    to[i] = static_cast<std::uint8_t>(mix(seed ^ mix(i)));
  }
};
struct RandomScales {
  std::uint8_t* to;
  std::uint64_t seed;
  __device__ void operator()(std::int64_t i) const {
    to[i] = static_cast<std::uint8_t>(116 + mix(seed + mix(i)) % 10);
  }
};
template <typename T>
struct RandomValues {
  T* to;
  std::uint64_t seed;
  float limit;
  __device__ void operator()(std::int64_t i) const { to[i] = T(limit * draw(seed, i)); }
};

template <typename Make>
__global__ void generate(std::int64_t count, Make make) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * blockDim.x) {
    make(i);
  }
}
template <typename Make>
void for_each(std::size_t count, Make make) {
  generate<<<1056, 256>>>(static_cast<std::int64_t>(count), make);
  CHECK_CUDA(cudaGetLastError());
}

// One matrix of every expert, in both forms.
struct Matrix {
  Matrix(int num_experts, int num_rows, int num_cols, std::uint64_t seed)
      : experts(num_experts),
        rows(num_rows),
        cols(num_cols),
        extent(nibble::formats::expert_tile_extent(LogicalRows(rows), LogicalCols(cols))),
        blocks(std::size_t(experts) * rows * cols / 2),
        scales(std::size_t(experts) * rows * cols / 32),
        bias(std::size_t(experts) * rows),
        values(experts * extent.value_bytes()),
        tile_scales(experts * extent.scale_bytes()),
        factors(experts),
        largest(std::size_t(experts) * 2) {
    for_each(blocks.size, RandomBytes{blocks.data, seed});
    for_each(scales.size, RandomScales{scales.data, seed + 1});
    for_each(bias.size, RandomValues<__nv_bfloat16>{bias.data, seed + 2, 0.5F});
    CHECK_CUDA(cudaMemset(largest.data, 0, largest.size * 4));
    const ExpertPack pack{blocks.data,
                          scales.data,
                          values.data,
                          tile_scales.data,
                          factors.data,
                          largest.data,
                          largest.data + experts,
                          rows,
                          cols};
    CHECK_CUDA(cudaDeviceSynchronize());
    expert_scale_range<<<dim3(16, experts), kPackThreads>>>(pack);
    CHECK_CUDA(cudaDeviceSynchronize());
    pack_expert_tiles<<<dim3(64, experts), kPackThreads>>>(pack);
    CHECK_CUDA(cudaDeviceSynchronize());
  }
  ExpertTiles tiles() const {
    return {values.data,
            tile_scales.data,
            factors.data,
            bias.data,
            rows,
            cols,
            static_cast<std::int32_t>(extent.bands),
            static_cast<std::int32_t>(extent.chunks)};
  }

  int experts, rows, cols;
  ExpertTileExtent extent;
  DeviceArray<std::uint8_t> blocks, scales;
  DeviceArray<__nv_bfloat16> bias;
  DeviceArray<std::uint8_t> values, tile_scales;
  DeviceArray<float> factors;
  DeviceArray<std::uint32_t> largest;
};

struct Layer {
  Layer(int num_experts, int hidden_, int intermediate_, std::uint64_t seed)
      : experts(num_experts),
        hidden(hidden_),
        intermediate(intermediate_),
        gate_up(num_experts, 2 * intermediate_, hidden_, seed),
        down(num_experts, hidden_, intermediate_, seed + 100) {}
  int experts, hidden, intermediate;
  Matrix gate_up, down;
};

// Routed rows of one batch.
struct Routing {
  int tokens = 0;
  int top_k = 0;
  std::vector<int> offs, gather, scatter;
  std::vector<float> weights;
  int rows() const { return static_cast<int>(gather.size()); }
  int used() const {
    int count = 0;
    for (std::size_t e = 0; e + 1 < offs.size(); ++e) {
      count += offs[e + 1] > offs[e];
    }
    return count;
  }
};

// `spread` < 1 sends most tokens to the first experts.
Routing route(int tokens, int top_k, int experts, double spread, std::mt19937& random) {
  Routing out;
  out.tokens = tokens;
  out.top_k = top_k;
  std::vector<std::vector<int>> lists(experts);
  std::vector<int> order(experts);
  std::uniform_real_distribution<double> uniform(0, 1);
  const int reach = std::max(top_k, static_cast<int>(experts * spread));
  for (int t = 0; t < tokens; ++t) {
    std::iota(order.begin(), order.end(), 0);
    for (int j = 0; j < top_k; ++j) {
      const int left = uniform(random) < 0.9 ? reach : experts;
      const int pick = j + static_cast<int>(random() % static_cast<unsigned>(left - j));
      std::swap(order[j], order[pick]);
    }
    std::sort(order.begin(), order.begin() + top_k);
    for (int j = 0; j < top_k; ++j) {
      lists[order[j]].push_back(t * top_k + j);
    }
    for (int j = 0; j < top_k; ++j) {
      out.weights.push_back(static_cast<float>(uniform(random)));
    }
  }
  out.scatter.assign(std::size_t(tokens) * top_k, -1);
  out.offs.push_back(0);
  for (const auto& list : lists) {
    for (const int flat : list) {
      out.scatter[flat] = static_cast<int>(out.gather.size());
      out.gather.push_back(flat);
    }
    out.offs.push_back(static_cast<int>(out.gather.size()));
  }
  return out;
}

struct DeviceRouting {
  explicit DeviceRouting(const Routing& from)
      : host(from),
        offs(from.offs),
        gather(from.gather),
        scatter(from.scatter),
        weights(from.weights) {}
  Routing host;
  DeviceArray<int> offs, gather, scatter;
  DeviceArray<float> weights;
};

// Buffers of a batch.
struct Batch {
  Batch(const Layer& layer, int tokens, int rows, std::uint64_t seed)
      : x(std::size_t(tokens) * layer.hidden),
        h(std::size_t(rows) * layer.intermediate),
        y(std::size_t(rows) * layer.hidden),
        out(std::size_t(tokens) * layer.hidden) {
    for_each(x.size, RandomValues<__nv_bfloat16>{x.data, seed, 2.0F});
    for_each(out.size, RandomValues<float>{out.data, seed + 9, 1.0F});
  }
  void poison() {
    CHECK_CUDA(cudaMemset(h.data, 0xFF, h.size * 2));
    CHECK_CUDA(cudaMemset(y.data, 0xFF, y.size * 4));
  }
  DeviceArray<__nv_bfloat16> x, h;
  DeviceArray<float> y, out;
};

MoeTilesArgs layer_args(const Layer& layer, const Batch& batch, const DeviceRouting& routing) {
  const auto tiles = [](const Matrix& matrix) {
    return Mxfp4Tiles{matrix.values.data, matrix.tile_scales.data, matrix.factors.data,
                      reinterpret_cast<const nibble::formats::Bf16*>(matrix.bias.data)};
  };
  MoeTilesArgs args;
  args.x = reinterpret_cast<const nibble::formats::Bf16*>(batch.x.data);
  args.slice_offs = routing.offs.data;
  args.gather = routing.gather.data;
  args.scatter = routing.scatter.data;
  args.weights = routing.weights.data;
  args.out = batch.out.data;
  args.gate_up = tiles(layer.gate_up);
  args.down = tiles(layer.down);
  args.num_tokens = routing.host.tokens;
  args.hidden = layer.hidden;
  args.intermediate = layer.intermediate;
  args.num_experts = layer.experts;
  args.top_k = routing.host.top_k;
  return args;
}

// The products with h and y in the batch.
ExpertProduct gate_up_args(const Layer& layer, const Batch& batch, const DeviceRouting& routing) {
  ExpertProduct args = gate_up_product(layer_args(layer, batch, routing));
  args.out = batch.h.data;
  return args;
}
ExpertProduct down_args(const Layer& layer, const Batch& batch, const DeviceRouting& routing) {
  ExpertProduct args = down_product(layer_args(layer, batch, routing));
  args.x = batch.h.data;
  args.out = batch.y.data;
  return args;
}

void check_status(const nibble::Status& status) {
  if (!status.ok()) {
    std::printf("%s\n", status.message().c_str());
    std::exit(2);
  }
}

nibble::Exec on_stream(cudaStream_t stream) {
  static const nibble::DeviceFacts kFacts = [] {
    cudaDeviceProp properties{};
    CHECK_CUDA(cudaGetDeviceProperties(&properties, 0));
    nibble::DeviceFacts facts;
    facts.sm = properties.major * 10 + properties.minor;
    facts.num_sms = properties.multiProcessorCount;
    return facts;
  }();
  return {nullptr, stream, &kFacts};
}

using Product = void (*)(const ExpertProduct&, bool is_gate_up, cudaStream_t);

template <typename Kernels>
void run_product(const ExpertProduct& args, bool is_gate_up, cudaStream_t stream) {
  static const nibble::Status kAllowed = allow_shared<Kernels>();
  check_status(kAllowed);
  check_status(launch_product<Kernels>(is_gate_up ? Kernels::kGateUp : Kernels::kDown, args,
                                       on_stream(stream)));
}
MoeCombine combine_args(const Layer& layer, const Batch& batch, const DeviceRouting& routing) {
  return {batch.y.data,        routing.scatter.data, routing.weights.data, batch.out.data,
          routing.host.tokens, layer.hidden,         routing.host.top_k};
}
void run_combine(const Layer& layer, const Batch& batch, const DeviceRouting& routing,
                 cudaStream_t stream) {
  check_status(launch_combine(combine_args(layer, batch, routing), on_stream(stream)));
}

struct Path {
  const char* name;
  Product product;
  bool is_stream;
};
const Path kPaths[] = {
    {moe_tiles_form_name(MoeTilesForm::kStream8), &run_product<MoeStreamKernels<MoeStream8>>, true},
    {moe_tiles_form_name(MoeTilesForm::kStream16), &run_product<MoeStreamKernels<MoeStream16>>,
     true},
    {moe_tiles_form_name(MoeTilesForm::kGrouped48), &run_product<MoeGroupedKernels<MoeGrouped48>>,
     false},
    {moe_tiles_form_name(MoeTilesForm::kGrouped192), &run_product<MoeGroupedKernels<MoeGrouped192>>,
     false},
};

// ---- check ----

// Product in double with the sum of magnitudes, a warp for each (row of x, weight row).
struct RefOut {
  double value;
  double magnitude;
};
__global__ void reference(ExpertTiles shape, const std::uint8_t* blocks, const std::uint8_t* scales,
                          const __nv_bfloat16* x, const int* gather, int top_k, const int* offs,
                          int experts, int rows, RefOut* out) {
  const std::int64_t job = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  if (job >= std::int64_t{rows} * shape.rows) {
    return;
  }
  const int p = static_cast<int>(job / shape.rows);
  const int n = static_cast<int>(job % shape.rows);
  int expert = 0;
  while (offs[expert + 1] <= p) {
    ++expert;
  }
  const std::int64_t source = gather == nullptr ? p : gather[p] / top_k;
  const std::int64_t row = std::int64_t{expert} * shape.rows + n;
  const double table[8] = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
  double sum = 0.0;
  double magnitude = 0.0;
  for (int b = lane; b < shape.cols / 32; b += 32) {
    const double scale = exp2(double(scales[row * (shape.cols / 32) + b]) - 127.0);
    for (int i = 0; i < 32; ++i) {
      const int pair = blocks[(row * (shape.cols / 32) + b) * 16 + i / 2];
      const int code = i % 2 == 0 ? pair & 15 : pair >> 4;
      const double w = (code & 8 ? -1.0 : 1.0) * table[code & 7] * scale;
      const double product = w * double(__bfloat162float(x[source * shape.cols + b * 32 + i]));
      sum += product;
      magnitude += fabs(product);
    }
  }
  for (int step = 16; step > 0; step /= 2) {
    sum += __shfl_xor_sync(0xFFFFFFFFU, sum, step);
    magnitude += __shfl_xor_sync(0xFFFFFFFFU, magnitude, step);
  }
  if (lane == 0) {
    const double bias = __bfloat162float(shape.bias[row]);
    out[job] = {sum + bias, magnitude + fabs(bias)};
  }
}

struct Verdict {
  unsigned worst;         // largest error over its hard bound, as float bits
  unsigned unwritten;     // NaN where none belongs
  double errors, likely;  // sums of squares
};

// fp32 sums in any order, truncated products added by the tensor cores: 2^-23 for each of the
// `terms` additions at most; roundings that do not conspire reach the square root of that.
__device__ void judge(double have, double want, double hard, double likely, Verdict* verdict) {
  if (have != have) {
    atomicAdd(&verdict->unwritten, 1U);
    return;
  }
  const double error = fabs(have - want);
  atomicMax(&verdict->worst, __float_as_uint(static_cast<float>(error / hard)));
  atomicAdd(&verdict->errors, error * error);
  atomicAdd(&verdict->likely, likely * likely);
}

__global__ void judge_gated(const __nv_bfloat16* h, const RefOut* want, std::int64_t count,
                            int terms, Verdict* verdict) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * blockDim.x) {
    const RefOut u = want[2 * i];
    const RefOut l = want[2 * i + 1];
    const double g = fmin(u.value, 7.0);
    const double up = fmin(fmax(l.value, -7.0), 7.0);
    const double sigmoid = 1.0 / (1.0 + exp(-1.702 * g));
    const double value = (up + 1.0) * g * sigmoid;
    const double slope_u = 1.1 * fabs(up + 1.0);  // |d/dg g sigmoid(1.702 g)| < 1.1
    const double slope_l = fabs(g * sigmoid);
    const double rounding = 0x1p-8 * fabs(value) + 0x1p-20 * fabs(value);
    const double hard = terms * 0x1p-23 * (slope_u * u.magnitude + slope_l * l.magnitude);
    const double likely =
        sqrt(double(terms)) * 0x1p-24 * hypot(slope_u * u.magnitude, slope_l * l.magnitude);
    judge(__bfloat162float(h[i]), value, hard + rounding + 1e-30, likely + rounding + 1e-30,
          verdict);
  }
}
__global__ void judge_plain(const float* y, const RefOut* want, std::int64_t count, int terms,
                            Verdict* verdict) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * blockDim.x) {
    judge(y[i], want[i].value, terms * 0x1p-23 * want[i].magnitude + 1e-30,
          sqrt(double(terms)) * 0x1p-24 * want[i].magnitude + 1e-30, verdict);
  }
}

__global__ void judge_combine(MoeCombine args, const float* before, Verdict* verdict) {
  const std::int64_t count = std::int64_t{args.num_tokens} * args.hidden;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * blockDim.x) {
    double sum = before[i];
    double magnitude = fabs(sum);
    for (int j = 0; j < args.top_k; ++j) {
      const std::int64_t slot = i / args.hidden * args.top_k + j;
      const double part = double(args.weights[slot]) *
                          args.y[args.scatter[slot] * std::int64_t{args.hidden} + i % args.hidden];
      sum += part;
      magnitude += fabs(part);
    }
    const double bound = args.top_k * 0x1p-24 * magnitude + 1e-30;
    judge(args.out[i], sum, bound, bound, verdict);
  }
}

bool g_failed = false;

void report(const char* what, const Path& path, const std::string& shape, const Verdict& verdict) {
  float worst = 0;
  std::memcpy(&worst, &verdict.worst, 4);
  const double whole = std::sqrt(verdict.errors / std::max(verdict.likely, 1e-300));
  const bool is_good = verdict.unwritten == 0 && worst <= 1.0F && whole <= 1.0;
  g_failed |= !is_good;
  if (!is_good) {
    std::printf("FAIL %s %s %s: worst / bound %.3g, norm / likely %.3g, NaN %u\n", path.name, what,
                shape.c_str(), worst, whole, verdict.unwritten);
  }
}

struct Spread {
  float worst = 0;
  double whole = 0;
  void add(const Verdict& verdict) {
    float mine = 0;
    std::memcpy(&mine, &verdict.worst, 4);
    worst = std::max(worst, mine);
    whole = std::max(whole, std::sqrt(verdict.errors / std::max(verdict.likely, 1e-300)));
  }
};
Spread g_gated[16], g_plain[16];

// Both products of every path against the reference; false for a path that does not take the size.
void check_batch(const Layer& layer, const Routing& host, std::uint64_t seed,
                 const std::string& what) {
  const DeviceRouting routing(host);
  const int rows = host.rows();
  Batch batch(layer, host.tokens, rows, seed);
  DeviceArray<RefOut> want_u(std::size_t(rows) * 2 * layer.intermediate);
  DeviceArray<RefOut> want_y(std::size_t(rows) * layer.hidden);
  DeviceArray<Verdict> verdicts(2);
  const auto refer = [&](const Matrix& matrix, const __nv_bfloat16* x, const int* gather,
                         RefOut* out) {
    const std::int64_t warps = std::int64_t{rows} * matrix.rows;
    if (warps > 0) {
      reference<<<(warps + 7) / 8, 256>>>(matrix.tiles(), matrix.blocks.data, matrix.scales.data, x,
                                          gather, host.top_k, routing.offs.data, layer.experts,
                                          rows, out);
      CHECK_CUDA(cudaGetLastError());
    }
  };
  refer(layer.gate_up, batch.x.data, routing.gather.data, want_u.data);
  for (std::size_t i = 0; i < std::size(kPaths); ++i) {
    const Path& path = kPaths[i];
    batch.poison();
    CHECK_CUDA(cudaMemset(verdicts.data, 0, sizeof(Verdict) * 2));
    path.product(gate_up_args(layer, batch, routing), true, nullptr);
    path.product(down_args(layer, batch, routing), false, nullptr);
    CHECK_CUDA(cudaDeviceSynchronize());
    refer(layer.down, batch.h.data, nullptr, want_y.data);
    judge_gated<<<528, 256>>>(batch.h.data, want_u.data, std::int64_t(batch.h.size), layer.hidden,
                              verdicts.data);
    judge_plain<<<528, 256>>>(batch.y.data, want_y.data, std::int64_t(batch.y.size),
                              layer.intermediate, verdicts.data + 1);
    CHECK_CUDA(cudaDeviceSynchronize());
    const auto results = verdicts.copy();
    report("gate/up", path, what, results[0]);
    report("down", path, what, results[1]);
    g_gated[i].add(results[0]);
    g_plain[i].add(results[1]);
  }
  DeviceArray<float> before(batch.out.size);
  CHECK_CUDA(cudaMemcpy(before.data, batch.out.data, before.size * 4, cudaMemcpyDeviceToDevice));
  CHECK_CUDA(cudaMemset(verdicts.data, 0, sizeof(Verdict)));
  const MoeCombine combine = combine_args(layer, batch, routing);
  check_status(launch_combine(combine, on_stream(nullptr)));
  judge_combine<<<528, 256>>>(combine, before.data, verdicts.data);
  CHECK_CUDA(cudaDeviceSynchronize());
  report("combine", kPaths[0], what, verdicts.copy()[0]);
}

// Every output bit and its place in one number.
__global__ void digest(const std::uint32_t* words, std::int64_t count, unsigned long long* out) {
  unsigned long long sum = 0;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * blockDim.x) {
    sum += mix(words[i] ^ static_cast<std::uint64_t>(i) << 32U);
  }
  atomicAdd(out, sum);
}

// `repeats` runs of both products; how many differ in a bit from the first.
int count_differences(const Layer& layer, const Routing& host, const Path& path, int repeats) {
  const DeviceRouting routing(host);
  Batch batch(layer, host.tokens, host.rows(), 77);
  DeviceArray<unsigned long long> digests(repeats);
  CHECK_CUDA(cudaMemset(digests.data, 0, repeats * 8));
  for (int i = 0; i < repeats; ++i) {
    if (i % 16 == 0) {
      batch.poison();
    }
    path.product(gate_up_args(layer, batch, routing), true, nullptr);
    path.product(down_args(layer, batch, routing), false, nullptr);
    digest<<<264, 256>>>(reinterpret_cast<const std::uint32_t*>(batch.h.data),
                         std::int64_t(batch.h.size / 2), digests.data + i);
    digest<<<264, 256>>>(reinterpret_cast<const std::uint32_t*>(batch.y.data),
                         std::int64_t(batch.y.size), digests.data + i);
  }
  CHECK_CUDA(cudaDeviceSynchronize());
  const auto all = digests.copy();
  return static_cast<int>(
      std::count_if(all.begin(), all.end(), [&](auto each) { return each != all[0]; }));
}

// Bytes of one expert against the maps applied on the host.
void check_pack(const Matrix& matrix, int expert) {
  const auto blocks = matrix.blocks.copy();
  const auto scales = matrix.scales.copy();
  const auto values = matrix.values.copy();
  const auto tile_scales = matrix.tile_scales.copy();
  const std::int64_t groups = matrix.cols / 32;
  const std::uint8_t* mine = scales.data() + std::int64_t{expert} * matrix.rows * groups;
  const int largest = *std::max_element(mine, mine + matrix.rows * groups);
  std::vector<std::uint32_t> words(matrix.extent.value_bytes() / 4);
  std::vector<std::uint8_t> bytes(matrix.extent.scale_bytes());
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    for (std::int64_t col = 0; col < matrix.cols; ++col) {
      const std::int64_t at = ((std::int64_t{expert} * matrix.rows + row) * matrix.cols + col) / 2;
      const std::uint32_t code = blocks[at] >> (col % 2 * 4) & 15;
      const std::int64_t to = nibble::formats::expert_value_offset({row, col}, matrix.extent);
      words[to / 8] |= code << (to % 8 * 4);
    }
    for (std::int64_t b = 0; b < groups; ++b) {
      bytes[nibble::formats::expert_scale_offset(row, b, matrix.extent)] =
          static_cast<std::uint8_t>(mine[row * groups + b] + 254 - largest);
    }
  }
  for (auto& word : words) {
    word = nibble::formats::hopper_pack_word(word);
  }
  const bool is_same =
      std::memcmp(words.data(), values.data() + expert * matrix.extent.value_bytes(),
                  words.size() * 4) == 0 &&
      std::memcmp(bytes.data(), tile_scales.data() + expert * matrix.extent.scale_bytes(),
                  bytes.size()) == 0;
  g_failed |= !is_same;
  std::printf("pack of expert %d: %s\n", expert, is_same ? "same bytes as on the host" : "FAIL");
}

int check(unsigned seed) {
  std::mt19937 random(seed);
  for (const auto& [hidden, intermediate] : {std::pair{64, 32}, {96, 160}, {224, 96}, {576, 352}}) {
    const Layer layer(5, hidden, intermediate, seed);
    for (const int tokens : {1, 7, 40, 300}) {
      check_batch(layer, route(tokens, 2, 5, 1.0, random), random(),
                  "hidden " + std::to_string(hidden) + " tokens " + std::to_string(tokens));
    }
  }
  const Layer layer(32, 2880, 2880, seed + 7);
  check_pack(layer.gate_up, 31);
  check_pack(layer.down, 0);
  for (const int tokens : {1, 2, 3, 5, 8, 9, 16, 17, 64, 128, 257}) {
    for (const double spread : {1.0, 0.1}) {
      check_batch(layer, route(tokens, 4, 32, spread, random), random(),
                  "tokens " + std::to_string(tokens) + " spread " + std::to_string(spread));
    }
  }
  for (int i = 0; i < 40; ++i) {
    const int tokens = 1 + static_cast<int>(random() % 300);
    check_batch(layer, route(tokens, 1, 32, 0.05 + 0.95 * (i % 8) / 7, random), random(),
                "ragged rows " + std::to_string(tokens));
  }
  for (std::size_t i = 0; i < std::size(kPaths); ++i) {
    std::printf(
        "%-38s largest error / bound: gate/up %.3f down %.3f, norm / likely norm: %.3f %.3f\n",
        kPaths[i].name, g_gated[i].worst, g_plain[i].worst, g_gated[i].whole, g_plain[i].whole);
    int runs = 0;
    int differing = 0;
    for (int b = 0; b < 10; ++b) {
      const int tokens = b == 0 ? 1 : 1 + static_cast<int>(random() % 300);
      differing +=
          count_differences(layer, route(tokens, 1, 32, 0.1 + 0.1 * b, random), kPaths[i], 300);
      runs += 300;
    }
    differing += count_differences(layer, route(64, 4, 32, 1.0, random), kPaths[i], 1000);
    runs += 1000;
    g_failed |= differing != 0;
    std::printf("%-38s %d runs of ragged batches, %d differ in a bit\n", kPaths[i].name, runs,
                differing);
  }
  std::printf("%s\n", g_failed ? "CHECK FAILED" : "check passed");
  return g_failed ? 1 : 0;
}

// One run of both products and the combine, for a profiler: path, experts, tokens.
int profile(const char* name, int experts, int tokens) {
  std::mt19937 random(1);
  const Layer layer(experts, 2880, 2880, 99);
  Batch batch(layer, tokens, tokens * 4, 5);
  const DeviceRouting routing(route(tokens, 4, experts, 1.0, random));
  for (const Path& path : kPaths) {
    if (std::strcmp(path.name, name) == 0) {
      path.product(gate_up_args(layer, batch, routing), true, nullptr);
      path.product(down_args(layer, batch, routing), false, nullptr);
      run_combine(layer, batch, routing, nullptr);
      CHECK_CUDA(cudaDeviceSynchronize());
      return 0;
    }
  }
  std::printf("no kernel %s\n", name);
  return 64;
}

// ---- time ----

double graph_us(const std::function<void(cudaStream_t)>& enqueue, int sets) {
  cudaStream_t stream = nullptr;
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  enqueue(stream);
  CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  CHECK_CUDA(cudaEventCreate(&begin));
  CHECK_CUDA(cudaEventCreate(&end));
  std::vector<float> times;
  for (int i = 0; i < 23; ++i) {
    CHECK_CUDA(cudaEventRecord(begin, stream));
    CHECK_CUDA(cudaGraphLaunch(exec, stream));
    CHECK_CUDA(cudaEventRecord(end, stream));
    CHECK_CUDA(cudaEventSynchronize(end));
    float ms = 0;
    CHECK_CUDA(cudaEventElapsedTime(&ms, begin, end));
    if (i >= 3) {
      times.push_back(ms * 1e3F / static_cast<float>(sets));
    }
  }
  CHECK_CUDA(cudaGraphExecDestroy(exec));
  CHECK_CUDA(cudaGraphDestroy(graph));
  CHECK_CUDA(cudaStreamDestroy(stream));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void time_tokens(const Layer& layer, int tokens, Batch& batch, std::FILE* records,
                 std::mt19937& random) {
  const int num_sets = tokens <= 64 ? 8 : 2;
  std::vector<DeviceRouting> sets;
  double used = 0;
  for (int i = 0; i < num_sets; ++i) {
    sets.emplace_back(route(tokens, 4, layer.experts, 1.0, random));
    used += double(sets.back().host.used()) / num_sets;
  }
  const double elems = 3.0 * layer.hidden * layer.intermediate;
  const double bytes = used * elems * 17 / 32;
  const double flops = 2.0 * tokens * 4 * elems;
  for (const Path& path : kPaths) {
    const double rows = tokens * 4.0 / layer.experts;
    if (path.is_stream ? rows > 20 : tokens < 16) {
      continue;
    }
    const auto run = [&](bool has_gate_up, bool has_down, bool has_combine) {
      return graph_us(
          [&](cudaStream_t stream) {
            for (const DeviceRouting& set : sets) {
              if (has_gate_up) {
                path.product(gate_up_args(layer, batch, set), true, stream);
              }
              if (has_down) {
                path.product(down_args(layer, batch, set), false, stream);
              }
              if (has_combine) {
                run_combine(layer, batch, set, stream);
              }
            }
          },
          num_sets);
    };
    const double all = run(true, true, true);
    const double gate_up = run(true, false, false);
    const double down = run(false, true, false);
    const double combine = run(false, false, true);
    const bool is_chosen =
        std::strcmp(path.name, moe_tiles_form_name(moe_tiles_form(tokens, 4, layer.experts))) == 0;
    std::printf(
        "%c E %3d T %5d used %5.1f %-38s %8.1f us %5.2f TB/s %6.1f TFLOP/s | gate/up %7.1f "
        "down %7.1f combine %6.1f\n",
        is_chosen ? '*' : ' ', layer.experts, tokens, used, path.name, all, bytes / all * 1e-6,
        flops / all * 1e-6, gate_up, down, combine);
    if (records != nullptr) {
      std::fprintf(records,
                   "{\"kernel\": \"%s\", \"chosen\": %s, \"experts\": %d, \"tokens\": %d, "
                   "\"used_experts\": %.1f, "
                   "\"us\": %.2f, \"tb_s\": %.3f, \"tflop_s\": %.1f, \"gate_up_us\": %.2f, "
                   "\"down_us\": %.2f, \"combine_us\": %.2f}\n",
                   path.name, is_chosen ? "true" : "false", layer.experts, tokens, used, all,
                   bytes / all * 1e-6, flops / all * 1e-6, gate_up, down, combine);
    }
  }
}

// `only`: numbers of tokens; none: all.
int time_all(const char* path, const std::vector<int>& only) {
  std::FILE* records = path == nullptr ? nullptr : std::fopen(path, "w");
  for (const int experts : {32, 128}) {
    std::mt19937 random(1234);
    const Layer layer(experts, 2880, 2880, 99);
    Batch batch(layer, 8192, 8192 * 4, 5);
    for (const int tokens : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 8192}) {
      if (only.empty() || std::find(only.begin(), only.end(), tokens) != only.end()) {
        time_tokens(layer, tokens, batch, records, random);
      }
    }
  }
  if (records != nullptr) {
    std::fclose(records);
  }
  return 0;
}

int run(int argc, char** argv) {
  const std::string verb = argc > 1 ? argv[1] : "";
  if (verb == "check") {
    return check(argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 1U);
  }
  if (verb == "time") {
    std::vector<int> only;
    for (int i = 3; i < argc; ++i) {
      only.push_back(std::atoi(argv[i]));
    }
    return time_all(argc > 2 ? argv[2] : nullptr, only);
  }
  if (verb == "profile" && argc == 5) {
    return profile(argv[2], std::atoi(argv[3]), std::atoi(argv[4]));
  }
  std::printf(
      "usage: bench_moe_cuda check [seed] | time [records [tokens...]] | profile KERNEL EXPERTS "
      "TOKENS\n");
  return 64;
}

}  // namespace
}  // namespace nibble::kernels

int main(int argc, char** argv) { return nibble::kernels::run(argc, argv); }
