// From a call to what the kernels take.
#pragma once

#include <cstddef>

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_plan.h"
#include "kernels/attention/device/attention_params.cuh"
#include "kernels/common/launch.cuh"

namespace nibble::kernels {

static_assert(sizeof(AttentionSequence) == sizeof(device::SequenceRange) &&
                  offsetof(AttentionSequence, pages) == offsetof(device::SequenceRange, pages) &&
                  offsetof(AttentionSequence, first_page) ==
                      offsetof(device::SequenceRange, first_page),
              "kernels read AttentionSequence as it is");

inline device::AttentionParams attention_params(const AttentionArgs& args,
                                                const AttentionCudaPlan& plan) {
  return {.q = args.q,
          .k_cache = args.k_cache,
          .v_cache = args.v_cache,
          .k_scales = args.k_scales,
          .v_scales = args.v_scales,
          .sinks = args.sinks,
          .out = args.out,
          .sequences = reinterpret_cast<const device::SequenceRange*>(args.device_sequences),
          .partials = reinterpret_cast<float*>(args.workspace.data()),
          .num_heads = args.num_heads,
          .num_kv_heads = args.num_kv_heads,
          .head_dim = args.head_dim,
          .page_size = args.page_size,
          .window = args.window,
          .max_chunks = plan.max_chunks,
          .chunks_per_block = plan.chunks_per_block,
          .scale = args.scale};
}

}  // namespace nibble::kernels
