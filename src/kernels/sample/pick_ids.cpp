#include "kernels/sample/pick_ids.h"

#include "base/error.h"

namespace nibble::kernels {
#define NIBBLE_INSTANCE(row) extern const Instance<PickIdsArgs> row;
#include "kernels/pick_ids_instances.inc"
#undef NIBBLE_INSTANCE

namespace {

const Instance<PickIdsArgs> kInstances[] = {
    {.info = {.name = "pick_ids_ref"},
     .accepts = &accepts_all<PickIdsArgs>,
     .run = &run_reference<&pick_ids_ref, PickIdsArgs>},
#define NIBBLE_INSTANCE(row) row,
#include "kernels/pick_ids_instances.inc"
#undef NIBBLE_INSTANCE
};

}  // namespace

std::span<const Instance<PickIdsArgs>> pick_ids_instances() { return kInstances; }

Status pick_ids_ref(const PickIdsArgs& args) {
  for (std::int32_t i = 0; i < args.count; ++i) {
    if (args.ids[i] < 0) {
      const std::int32_t at = -1 - args.ids[i];
      args.ids[i] = at < args.num_sampled ? args.sampled[at] : -1;
    }
  }
  return {};
}

Status pick_ids(const PickIdsArgs& args, const Exec& exec) {
  if (args.count < 0 || args.num_sampled < 0) {
    return error(Code::kInvalidArgument, "pick_ids: want counts of at least 0, got {} and {}",
                 args.count, args.num_sampled);
  }
  if (exec.device == nullptr) {
    return pick_ids_ref(args);
  }
  return run_best("pick_ids", pick_ids_instances(), args, exec);
}

}  // namespace nibble::kernels
