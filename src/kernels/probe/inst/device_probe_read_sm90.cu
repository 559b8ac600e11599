#include "kernels/common/launch.cuh"
#include "kernels/probe/device/read_all.cuh"
#include "kernels/probe/device_probe.h"

namespace nibble::kernels {
namespace {

Status run(const DeviceProbeArgs& args, const Exec& exec) {
  *args.work = static_cast<double>(args.bytes);
  // Four blocks fill a multiprocessor.
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(4 * exec.device->num_sms)),
                          .block = dim3(device::kReadThreads)};
  return launch("device_probe", device::read_all, shape, exec, static_cast<const uint4*>(args.data),
                args.bytes / 16, args.result);
}

bool is_read(const DeviceProbeArgs& args) { return args.limit == DeviceLimit::kRead; }

}  // namespace

extern constinit const Instance<DeviceProbeArgs> device_probe_read_sm90{
    .info = {.name = "device_probe_read_sm90",
             .backend = Backend::kCuda,
             .min_sm = 90,
             .verified = true},
    .accepts = &is_read,
    .run = &run,
};

}  // namespace nibble::kernels
