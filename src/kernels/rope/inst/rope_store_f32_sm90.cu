#include "kernels/common/launch.cuh"
#include "kernels/rope/device/rope_store.cuh"
#include "kernels/rope/rope_store.h"

namespace nibble::kernels {
namespace {

// With many rows a thread takes five pairs, so that it seldom takes a sine; with few the device
// would not be full.
constexpr std::int32_t kManyRows = 128;
constexpr int kManyPairs = 5;

template <typename Q, typename Kv>
Status launch_rope(const RopeStoreArgs& args, const Exec& exec) {
  const device::RopeParams<Q, Kv> params{.qkv = args.qkv,
                                         .positions = args.positions,
                                         .slots = args.slots,
                                         .inv_freq = args.inv_freq,
                                         .q_out = static_cast<Q*>(args.q_out),
                                         .k_cache = static_cast<Kv*>(args.k_cache),
                                         .v_cache = static_cast<Kv*>(args.v_cache),
                                         .num_heads = args.num_heads,
                                         .num_kv_heads = args.num_kv_heads,
                                         .head_dim = args.head_dim,
                                         .page_size = args.page_size,
                                         .concentration = args.concentration};
  const bool is_many = args.rows >= kManyRows && device::kRopeThreads % (args.head_dim / 2) == 0;
  const std::int64_t block_pairs = device::kRopeThreads * (is_many ? kManyPairs : 1);
  const std::int64_t pairs =
      (args.num_heads + 2 * std::int64_t{args.num_kv_heads}) * args.head_dim / 2;
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(args.rows), ceil_div(pairs, block_pairs)),
      .block = dim3(device::kRopeThreads),
      .is_dependent = true};
  return launch("rope_store",
                is_many ? device::rope_store<Q, Kv, kManyPairs> : device::rope_store<Q, Kv, 1>,
                shape, exec, params);
}

template <typename Q>
Status launch_for_q(const RopeStoreArgs& args, const Exec& exec) {
  return args.kv_dtype == DType::kBF16 ? launch_rope<Q, __nv_bfloat16>(args, exec)
                                       : launch_rope<Q, float>(args, exec);
}

Status run(const RopeStoreArgs& args, const Exec& exec) {
  return args.q_dtype == DType::kBF16 ? launch_for_q<__nv_bfloat16>(args, exec)
                                      : launch_for_q<float>(args, exec);
}

bool fits(const RopeStoreArgs& args) { return args.kv_dtype != DType::kE4M3; }

}  // namespace

extern constinit const Instance<RopeStoreArgs> rope_store_f32_sm90{
    .info = {.name = "rope_store_f32_sm90",
             .backend = Backend::kCuda,
             .min_sm = 90,
             .verified = true},
    .accepts = &fits,
    .run = &run,
};

}  // namespace nibble::kernels
