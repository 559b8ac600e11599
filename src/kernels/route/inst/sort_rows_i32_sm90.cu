#include <algorithm>

#include "kernels/common/launch.cuh"
#include "kernels/route/device/sort_rows.cuh"
#include "kernels/route/sort_rows.h"

namespace nibble::kernels {
namespace {

static_assert(sizeof(device::SortRowsShared) <= 48 * 1024);

Status run(const SortRowsArgs& args, const Exec& exec) {
  const device::SortRowsParams params{.ids = args.ids,
                                      .slice_offs = args.slice_offs,
                                      .gather = args.gather,
                                      .scatter = args.scatter,
                                      .rows = args.num_tokens * args.top_k,
                                      .num_experts = args.num_experts};
  // Without rows too: slice_offs says so.
  const LaunchShape shape{.grid = dim3(std::max(1U, ceil_div(params.rows, device::kSortThreads))),
                          .block = dim3(device::kSortThreads),
                          .is_dependent = true};
  return launch("sort_rows", device::sort_rows, shape, exec, params);
}

bool fits_a_block(const SortRowsArgs& args) {
  return args.num_experts <= device::kMostSortedExperts;
}

}  // namespace

extern constinit const Instance<SortRowsArgs> sort_rows_i32_sm90{
    .info = {.name = "sort_rows_i32_sm90",
             .backend = Backend::kCuda,
             .min_sm = 90,
             .verified = true},
    .accepts = &fits_a_block,
    .run = &run,
};

}  // namespace nibble::kernels
