#include "kernels/common/launch.cuh"
#include "kernels/rope/device/rope_store_e4m3.cuh"
#include "kernels/rope/rope_store.h"

namespace nibble::kernels {
namespace {

template <typename Q>
Status launch_for_q(const RopeStoreArgs& args, const Exec& exec) {
  const device::RopeParams<Q, std::uint8_t> params{.qkv = args.qkv,
                                                   .positions = args.positions,
                                                   .slots = args.slots,
                                                   .inv_freq = args.inv_freq,
                                                   .q_out = static_cast<Q*>(args.q_out),
                                                   .num_heads = args.num_heads,
                                                   .num_kv_heads = args.num_kv_heads,
                                                   .head_dim = args.head_dim,
                                                   .page_size = args.page_size,
                                                   .concentration = args.concentration};
  const device::ScaledCaches caches{.k = static_cast<std::uint8_t*>(args.k_cache),
                                    .v = static_cast<std::uint8_t*>(args.v_cache),
                                    .k_scales = args.k_scales,
                                    .v_scales = args.v_scales};
  const std::int64_t heads = args.num_heads + std::int64_t{2} * args.num_kv_heads;
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(args.rows), ceil_div(heads, device::kRopeWarps)),
      .block = dim3(device::kRopeThreads),
      .is_dependent = true};
  return launch("rope_store_e4m3", device::rope_store_e4m3<Q>, shape, exec, params, caches);
}

Status run(const RopeStoreArgs& args, const Exec& exec) {
  return args.q_dtype == DType::kBF16 ? launch_for_q<__nv_bfloat16>(args, exec)
                                      : launch_for_q<float>(args, exec);
}

bool fits(const RopeStoreArgs& args) {
  return args.kv_dtype == DType::kE4M3 && args.head_dim <= 2 * device::kMostHeadPairs;
}

}  // namespace

extern constinit const Instance<RopeStoreArgs> rope_store_e4m3_sm90{
    .info = {.name = "rope_store_e4m3_sm90",
             .backend = Backend::kCuda,
             .min_sm = 90,
             .verified = true},
    .accepts = &fits,
    .run = &run,
};

}  // namespace nibble::kernels
