#include "kernels/common/launch.cuh"
#include "kernels/sample/device/sample_rows.cuh"
#include "kernels/sample/sample_rows.h"

namespace nibble::kernels {
namespace {

constexpr std::size_t row_part_bytes(std::int32_t vocab) {
  return sizeof(float) * static_cast<std::size_t>(device::kClusterThreads) *
         static_cast<std::size_t>(device::stretch_of(vocab));
}

Status run(const SampleRowsArgs& args, const Exec& exec) {
  static const Status allowed = allow_shared_bytes("sample_rows", device::sample_rows,
                                                   row_part_bytes(device::kMostSampledVocab));
  NIBBLE_RETURN_IF_ERROR(Status(allowed));
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(args.num_rows) * device::kClusterBlocks),
      .block = dim3(device::kClusterThreads),
      .shared_bytes = row_part_bytes(args.vocab)};
  return launch("sample_rows", device::sample_rows, shape, exec,
                device::SampleRowsParams{.logits = args.logits,
                                         .rows = args.rows,
                                         .counts = args.counts,
                                         .logit_bias = args.logit_bias,
                                         .ids = args.ids,
                                         .vocab = args.vocab});
}

bool fits_a_cluster(const SampleRowsArgs& args) { return args.vocab <= device::kMostSampledVocab; }

}  // namespace

extern constinit const Instance<SampleRowsArgs> sample_rows_f32_sm90{
    .info = {.name = "sample_rows_f32_sm90",
             .backend = Backend::kCuda,
             .min_sm = 90,
             .verified = true},
    .accepts = &fits_a_cluster,
    .run = &run,
};

}  // namespace nibble::kernels
