#include "kernels/common/launch.cuh"
#include "kernels/convert/device/gather_rows.cuh"
#include "kernels/convert/gather_rows.h"

namespace nibble::kernels {
namespace {

template <typename In>
Status launch_gather(const GatherRowsArgs& args, const Exec& exec) {
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(args.rows)),
                          .block = dim3(device::kGatherThreads),
                          .is_dependent = true};
  return launch("gather_rows", device::gather_rows<In>, shape, exec,
                static_cast<const In*>(args.table), args.ids, args.out, args.cols, args.table_rows);
}

Status run(const GatherRowsArgs& args, const Exec& exec) {
  return args.dtype == DType::kBF16 ? launch_gather<__nv_bfloat16>(args, exec)
                                    : launch_gather<float>(args, exec);
}

}  // namespace

extern constinit const Instance<GatherRowsArgs> gather_rows_sm90{
    .info = {.name = "gather_rows_sm90", .backend = Backend::kCuda, .min_sm = 90, .verified = true},
    .accepts = &accepts_all<GatherRowsArgs>,
    .run = &run,
};

}  // namespace nibble::kernels
