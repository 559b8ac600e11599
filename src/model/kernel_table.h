// The kernels that a model calls, chosen once at load.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/convert/gather_rows.h"
#include "kernels/decode/decode_step.h"
#include "kernels/gemm/gemm.h"
#include "kernels/moe/moe.h"
#include "kernels/moe/moe_tiles.h"
#include "kernels/norm/rms_norm.h"
#include "kernels/rope/rope_store.h"
#include "kernels/route/sort_rows.h"
#include "kernels/route/top_k.h"
#include "kernels/sample/pick_ids.h"
#include "kernels/sample/sample_rows.h"
#include "model/model.h"

namespace nibble::model {

template <typename Args>
using KernelFn = Status (*)(const Args& args, const Exec& exec);

struct KernelTable {
  KernelFn<kernels::GatherRowsArgs> gather_rows = nullptr;
  KernelFn<kernels::RmsNormArgs> rms_norm = nullptr;
  KernelFn<kernels::GemmArgs> gemm = nullptr;
  KernelFn<kernels::RopeStoreArgs> rope_store = nullptr;
  KernelFn<kernels::AttentionArgs> attention = nullptr;
  KernelFn<kernels::TopKArgs> top_k = nullptr;
  KernelFn<kernels::MoeArgs> moe = nullptr;
  // Of models on a GPU alone.
  KernelFn<kernels::SortRowsArgs> sort_rows = nullptr;
  KernelFn<kernels::MoeTilesArgs> moe_tiles = nullptr;
  KernelFn<kernels::PickIdsArgs> pick_ids = nullptr;
  KernelFn<kernels::SampleRowsArgs> sample_rows = nullptr;
  KernelFn<kernels::DecodeStepArgs> decode_step = nullptr;
};

KernelTable kernel_table(KernelChoice choice);

}  // namespace nibble::model
