#include "model/kernel_table.h"

namespace nibble::model {
namespace {

template <auto kReference, typename Args>
Status reference(const Args& args, const Exec& /*exec*/) {
  return kReference(args);
}

KernelTable reference_table() {
  return {
      .gather_rows = &reference<&kernels::gather_rows_ref, kernels::GatherRowsArgs>,
      .rms_norm = &reference<&kernels::rms_norm_ref, kernels::RmsNormArgs>,
      .gemm = &reference<&kernels::gemm_ref, kernels::GemmArgs>,
      .rope_store = &reference<&kernels::rope_store_ref, kernels::RopeStoreArgs>,
      .attention = &reference<&kernels::attention_ref, kernels::AttentionArgs>,
      .top_k = &reference<&kernels::top_k_ref, kernels::TopKArgs>,
      .moe = &reference<&kernels::moe_ref, kernels::MoeArgs>,
  };
}

}  // namespace

KernelTable kernel_table(KernelChoice choice) {
  if (choice == KernelChoice::kReference) {
    return reference_table();
  }
  return {
      .gather_rows = &kernels::gather_rows,
      .rms_norm = &kernels::rms_norm,
      .gemm = &kernels::gemm,
      .rope_store = &kernels::rope_store,
      .attention = &kernels::attention,
      .top_k = &kernels::top_k,
      .moe = &kernels::moe,
      .sort_rows = &kernels::sort_rows,
      .moe_tiles = &kernels::moe_tiles,
      .pick_ids = &kernels::pick_ids,
      .sample_rows = &kernels::sample_rows,
      .decode_step = &kernels::decode_step,
  };
}

}  // namespace nibble::model
