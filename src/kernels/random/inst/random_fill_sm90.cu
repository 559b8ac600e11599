#include <algorithm>
#include <cstring>

#include "kernels/common/launch.cuh"
#include "kernels/random/device/random_fill.cuh"
#include "kernels/random/random_fill.h"

namespace nibble::kernels {
namespace {

static_assert(device::kQuantiles == kRandomQuantiles);
// Enough to fill the memory's queues; each then strides.
constexpr std::int64_t kMostBlocks = 2048;

Status run(const RandomFillArgs& args, const Exec& exec) {
  const std::int64_t words = (args.bytes + 7) / 8;
  const LaunchShape shape{
      .grid = dim3(std::min<unsigned>(ceil_div(words, device::kRandomThreads), kMostBlocks)),
      .block = dim3(device::kRandomThreads)};
  const device::RandomFill fill{.out = static_cast<std::uint64_t*>(args.out),
                                .bytes = args.bytes,
                                .first_word = args.first_word,
                                .key = args.key,
                                .middle_scale = args.middle_scale};
  switch (args.form) {
    case RandomForm::kBytes: return launch("random_fill", device::random_bytes, shape, exec, fill);
    case RandomForm::kScales:
      return launch("random_fill", device::random_scale_bytes, shape, exec, fill);
    case RandomForm::kBf16: break;
  }
  device::Quantiles table;
  std::memcpy(table.bf16, args.quantiles, sizeof(table.bf16));
  return launch("random_fill", device::random_bf16, shape, exec, fill, table);
}

}  // namespace

extern constinit const Instance<RandomFillArgs> random_fill_sm90{
    .info = {.name = "random_fill_sm90", .backend = Backend::kCuda, .min_sm = 90, .verified = true},
    .accepts = &accepts_all<RandomFillArgs>,
    .run = &run,
};

}  // namespace nibble::kernels
