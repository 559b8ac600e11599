#include "kernels/route/sort_rows.h"

#include <algorithm>

#include "base/error.h"

namespace nibble::kernels {
#define NIBBLE_INSTANCE(row) extern const Instance<SortRowsArgs> row;
#include "kernels/sort_rows_instances.inc"
#undef NIBBLE_INSTANCE

namespace {

const Instance<SortRowsArgs> kInstances[] = {
    {.info = {.name = "sort_rows_ref"},
     .accepts = &accepts_all<SortRowsArgs>,
     .run = &run_reference<&sort_rows_ref, SortRowsArgs>},
#define NIBBLE_INSTANCE(row) row,
#include "kernels/sort_rows_instances.inc"
#undef NIBBLE_INSTANCE
};

}  // namespace

std::span<const Instance<SortRowsArgs>> sort_rows_instances() { return kInstances; }

Status sort_rows_ref(const SortRowsArgs& args) {
  const std::int64_t rows = std::int64_t{args.num_tokens} * args.top_k;
  std::fill_n(args.slice_offs, args.num_experts + 1, 0);
  for (std::int64_t flat = 0; flat < rows; ++flat) {
    ++args.slice_offs[args.ids[flat] + 1];
  }
  for (std::int32_t expert = 0; expert < args.num_experts; ++expert) {
    args.slice_offs[expert + 1] += args.slice_offs[expert];
  }
  for (std::int32_t expert = 0; expert < args.num_experts; ++expert) {
    std::int32_t next = args.slice_offs[expert];
    for (std::int64_t flat = 0; flat < rows; ++flat) {
      if (args.ids[flat] == expert) {
        args.gather[next] = static_cast<std::int32_t>(flat);
        args.scatter[flat] = next++;
      }
    }
  }
  return {};
}

Status sort_rows(const SortRowsArgs& args, const Exec& exec) {
  if (args.num_tokens < 0 || args.top_k < 1 || args.num_experts < 1) {
    return error(Code::kInvalidArgument,
                 "sort_rows: want num_tokens >= 0, top_k and num_experts > 0, got {}, {}, {}",
                 args.num_tokens, args.top_k, args.num_experts);
  }
  return run_best("sort_rows", sort_rows_instances(), args, exec);
}

}  // namespace nibble::kernels
