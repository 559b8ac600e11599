#include <hwy/targets.h>

#include <cstring>
#include <string_view>

#include "base/thread_pool.h"
#include "formats/bf16.h"
#include "kernel/bench.h"

namespace nibble::bench {
namespace {

// What a lesser processor's vectors would do; rows of an instruction set of their own stay.
bool limit_vectors(std::string_view target) {
#if HWY_ARCH_X86
  const std::int64_t above_avx2 = HWY_AVX2 - 1;  // better targets have lower bits
  hwy::DisableTargets(target == "avx2" ? above_avx2 : above_avx2 | HWY_AVX2);
#endif
  return target == "avx2" || target == "plain";
}

}  // namespace

std::vector<std::byte> random_values(std::int64_t count, DType dtype, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::byte> out(static_cast<std::size_t>(count * dtype_bits(dtype) / 8));
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = random.value();
    if (dtype == DType::kF32) {
      std::memcpy(&out[static_cast<std::size_t>(4 * i)], &value, sizeof(value));
    } else {
      const formats::Bf16 rounded = formats::f32_to_bf16(value);
      std::memcpy(&out[static_cast<std::size_t>(2 * i)], &rounded, sizeof(rounded));
    }
  }
  return out;
}

}  // namespace nibble::bench

int main(int argc, char** argv) {
  nibble::bench::Options options;
  int threads = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--references") {
      options.with_references = true;
    } else if (i + 1 < argc && flag == "-t") {
      threads = std::atoi(argv[++i]);
    } else if (i + 1 < argc && flag == "--vectors" && nibble::bench::limit_vectors(argv[i + 1])) {
      ++i;
    } else if (i + 1 < argc && flag == "--filter") {
      options.filter = argv[++i];
    } else if (i + 1 < argc && flag == "--seconds") {
      options.seconds = std::atof(argv[++i]);
    } else {
      fmt::print(stderr,
                 "usage: bench_kernels [-t THREADS] [--filter REGEX over shape/instance] "
                 "[--seconds EACH] [--vectors avx2|plain] [--references]\n");
      return 2;
    }
  }
  nibble::ThreadPool pool(threads);
  fmt::print("{} threads\n", pool.size());
  nibble::bench::bench_gemm(options, pool);
  nibble::bench::bench_moe(options, pool);
  nibble::bench::bench_attention(options, pool);
  return 0;
}
