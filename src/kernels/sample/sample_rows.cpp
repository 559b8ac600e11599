#include "kernels/sample/sample_rows.h"

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace nibble::kernels {
#define NIBBLE_INSTANCE(row) extern const Instance<SampleRowsArgs> row;
#include "kernels/sample_rows_instances.inc"
#undef NIBBLE_INSTANCE

namespace {

Status validate(const SampleRowsArgs& args) {
  if (args.num_rows < 0 || args.vocab < 1) {
    return error(Code::kInvalidArgument, "sample_rows: want rows >= 0 and a vocabulary, got {}, {}",
                 args.num_rows, args.vocab);
  }
  return {};
}

const Instance<SampleRowsArgs> kInstances[] = {
    {.info = {.name = "sample_rows_ref"},
     .accepts = &accepts_all<SampleRowsArgs>,
     .run = &run_reference<&sample_rows_ref, SampleRowsArgs>},
#define NIBBLE_INSTANCE(row) row,
#include "kernels/sample_rows_instances.inc"
#undef NIBBLE_INSTANCE
};

}  // namespace

std::span<const Instance<SampleRowsArgs>> sample_rows_instances() { return kInstances; }

Status sample_rows_ref(const SampleRowsArgs& args) {
  NIBBLE_RETURN_IF_ERROR(validate(args));
  const auto vocab = static_cast<std::size_t>(args.vocab);
  std::vector<float> logits(vocab);
  std::vector<float> scratch(vocab);
  std::vector<std::int32_t> order(vocab);
  for (std::int32_t index = 0; index < args.num_rows; ++index) {
    const SampleRow& row = args.rows[index];
    std::copy_n(args.logits + index * std::int64_t{args.vocab}, vocab, logits.begin());
    const Result<std::int32_t> token = sample(
        {.logits = logits,
         .counts = {args.counts + row.first_count, static_cast<std::size_t>(row.num_counts)},
         .logit_bias = {args.logit_bias + row.first_bias, static_cast<std::size_t>(row.num_bias)},
         .temperature = row.temperature,
         .top_k = row.top_k,
         .top_p = row.top_p,
         .min_p = row.min_p,
         .repetition_penalty = row.repetition_penalty,
         .presence_penalty = row.presence_penalty,
         .frequency_penalty = row.frequency_penalty,
         .seed = row.seed,
         .counter = row.counter,
         .scratch = scratch,
         .order = order});
    if (!token && token.error().code() != Code::kInternal) {
      return token.error();
    }
    args.ids[index] = token ? *token : -1;
  }
  return {};
}

Status sample_rows(const SampleRowsArgs& args, const Exec& exec) {
  NIBBLE_RETURN_IF_ERROR(validate(args));
  if (exec.device == nullptr) {
    return sample_rows_ref(args);
  }
  return run_best("sample_rows", sample_rows_instances(), args, exec);
}

}  // namespace nibble::kernels
