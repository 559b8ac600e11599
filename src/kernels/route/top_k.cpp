#include "kernels/route/top_k.h"

#include "base/error.h"

namespace nibble::kernels {
#define NIBBLE_INSTANCE(row) extern const Instance<TopKArgs> row;
#include "kernels/top_k_instances.inc"
#undef NIBBLE_INSTANCE

namespace {

// A row is a few dozen comparisons: the scalar form is no bottleneck beside the expert products.
const Instance<TopKArgs> kInstances[] = {
    {.info = {.name = "top_k_ref"},
     .accepts = &accepts_all<TopKArgs>,
     .run = &run_reference<&top_k_ref, TopKArgs>},
#define NIBBLE_INSTANCE(row) row,
#include "kernels/top_k_instances.inc"
#undef NIBBLE_INSTANCE
};

Status validate(const TopKArgs& args) {
  if (args.rows < 0 || args.num_valid_rows < 0 || args.num_valid_rows > args.rows) {
    return error(Code::kInvalidArgument, "top_k: want 0 <= num_valid_rows <= rows, got {} of {}",
                 args.num_valid_rows, args.rows);
  }
  if (args.top_k < 1 || args.top_k > args.num_experts) {
    return error(Code::kInvalidArgument, "top_k: want 1..{} experts a token, got {}",
                 args.num_experts, args.top_k);
  }
  return {};
}

}  // namespace

std::span<const Instance<TopKArgs>> top_k_instances() { return kInstances; }

Status top_k(const TopKArgs& args, const Exec& exec) {
  NIBBLE_RETURN_IF_ERROR(validate(args));
  return run_best("top_k", top_k_instances(), args, exec);
}

}  // namespace nibble::kernels
