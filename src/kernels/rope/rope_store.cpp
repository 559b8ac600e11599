#include "kernels/rope/rope_store.h"

#include "base/error.h"
#include "kernels/common/cache_rows.h"
#include "kernels/rope/rope_store_cpu.h"

namespace nibble::kernels {
#define NIBBLE_INSTANCE(row) extern const Instance<RopeStoreArgs> row;
#include "kernels/rope_store_instances.inc"
#undef NIBBLE_INSTANCE

namespace {

const Instance<RopeStoreArgs> kInstances[] = {
    {.info = {.name = "rope_store_ref"},
     .accepts = &accepts_all<RopeStoreArgs>,
     .run = &run_reference<&rope_store_ref, RopeStoreArgs>},
    {.info = {.name = "rope_store_cpu", .backend = Backend::kCpu},
     .accepts = &fits_rope_store_cpu,
     .run = &rope_store_cpu},
#define NIBBLE_INSTANCE(row) row,
#include "kernels/rope_store_instances.inc"
#undef NIBBLE_INSTANCE
};

Status validate(const RopeStoreArgs& args) {
  if (args.rows < 0 || args.head_dim <= 0 || args.head_dim % 2 != 0 || args.num_kv_heads <= 0 ||
      args.num_heads <= 0 || args.page_size <= 0) {
    return error(Code::kInvalidArgument,
                 "rope_store: want rows >= 0, an even head_dim, heads and page_size > 0, got {} "
                 "rows, head_dim {}, {} and {} heads, page_size {}",
                 args.rows, args.head_dim, args.num_heads, args.num_kv_heads, args.page_size);
  }
  if (!is_activation_dtype(args.q_dtype) || !is_cache_dtype(args.kv_dtype)) {
    return error(
        Code::kUnsupported,
        "rope_store: want q of f32 or bf16 and a cache of f32, bf16 or e4m3, got {} and {}",
        dtype_name(args.q_dtype), dtype_name(args.kv_dtype));
  }
  if (args.kv_dtype == DType::kE4M3 && (args.k_scales == nullptr || args.v_scales == nullptr)) {
    return error(Code::kInvalidArgument, "rope_store: want scales with a cache of e4m3, got none");
  }
  return {};
}

}  // namespace

std::span<const Instance<RopeStoreArgs>> rope_store_instances() { return kInstances; }

Status rope_store(const RopeStoreArgs& args, const Exec& exec) {
  NIBBLE_RETURN_IF_ERROR(validate(args));
  return run_best("rope_store", rope_store_instances(), args, exec);
}

}  // namespace nibble::kernels
