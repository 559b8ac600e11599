#include "kernels/common/launch.cuh"
#include "kernels/sample/device/pick_ids.cuh"
#include "kernels/sample/pick_ids.h"

namespace nibble::kernels {
namespace {

Status run(const PickIdsArgs& args, const Exec& exec) {
  return launch("pick_ids", device::pick_ids,
                {.grid = dim3(ceil_div(args.count, device::kPickThreads)),
                 .block = dim3(device::kPickThreads)},
                exec,
                device::PickIdsParams{.ids = args.ids,
                                      .sampled = args.sampled,
                                      .count = args.count,
                                      .num_sampled = args.num_sampled});
}

}  // namespace

extern constinit const Instance<PickIdsArgs> pick_ids_i32_sm90{
    .info = {.name = "pick_ids_i32_sm90",
             .backend = Backend::kCuda,
             .min_sm = 90,
             .verified = true},
    .accepts = &accepts_all<PickIdsArgs>,
    .run = &run,
};

}  // namespace nibble::kernels
