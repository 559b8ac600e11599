#include "api/kernel_table.h"

#include "kernels/attention/attention.h"
#include "kernels/convert/gather_rows.h"
#include "kernels/gemm/gemm.h"
#include "kernels/moe/moe.h"
#include "kernels/norm/rms_norm.h"
#include "kernels/quantize/quantize.h"
#include "kernels/rope/rope_store.h"
#include "kernels/route/top_k.h"

namespace nibble {
namespace {

template <typename Args>
void append(const char* family, std::span<const kernels::Instance<Args>> table,
            std::vector<KernelRow>& rows) {
  for (const kernels::Instance<Args>& row : table) {
    rows.push_back({family, row.info, true});
  }
}

}  // namespace

std::vector<KernelRow> kernel_rows() {
  std::vector<KernelRow> rows;
  append("attention", kernels::attention_instances(), rows);
  append("gather_rows", kernels::gather_rows_instances(), rows);
  append("gemm", kernels::gemm_instances(), rows);
  append("moe", kernels::moe_instances(), rows);
  append("rms_norm", kernels::rms_norm_instances(), rows);
  append("rope_store", kernels::rope_store_instances(), rows);
  append("top_k", kernels::top_k_instances(), rows);
  for (const kernels::InstanceInfo& info : kernels::quantize_instances()) {
    rows.push_back({"quantize", info, false});
  }
  return rows;
}

}  // namespace nibble
