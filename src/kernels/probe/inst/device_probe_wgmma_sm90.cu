#include "kernels/common/launch.cuh"
#include "kernels/probe/device/multiply_bf16.cuh"
#include "kernels/probe/device_probe.h"

namespace nibble::kernels {
namespace {

Status run(const DeviceProbeArgs& args, const Exec& exec) {
  *args.work = device::kProductOperations * device::kProductsOfARound * device::kProductGroups *
               args.rounds * exec.device->num_sms;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(exec.device->num_sms)),
                          .block = dim3(device::kProductThreads),
                          .shared_bytes = device::kProductBytes};
  return launch("device_probe", device::multiply_bf16, shape, exec,
                static_cast<const uint4*>(args.data), args.rounds, args.result);
}

bool is_products(const DeviceProbeArgs& args) { return args.limit == DeviceLimit::kBf16Products; }

}  // namespace

extern constinit const Instance<DeviceProbeArgs> device_probe_wgmma_sm90{
    .info = {.name = "device_probe_wgmma_sm90",
             .backend = Backend::kCuda,
             .min_sm = 90,
             .verified = true},
    .accepts = &is_products,
    .run = &run,
};

}  // namespace nibble::kernels
