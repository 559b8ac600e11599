// The expert products of moe.h on a GPU, for MXFP4 weights in expert tiles (formats/expert_tiles.h)
// and bf16 activations, with rows already sorted by expert (kernels/route/ragged.h).
//
// Weights are exact. Products accumulate in fp32; h is rounded to bf16; y stays fp32; the weighted
// sum over slots is fp32, slots ascending. A row's bits depend on the kernel that runs and on
// nothing else in the batch; the kernel follows from the sizes alone (moe_tiles_form). Every run
// gives the same bits: no atomics on floats. docs/kernels/moe.md has the kernels and their speed.
#pragma once

#include <cstdint>
#include <span>

#include "formats/bf16.h"
#include "kernels/common/instance.h"
#include "kernels/common/mxfp4_tiles.h"
#include "nibble/status.h"
#include "tensor/exec.h"

namespace nibble::kernels {

// Every pointer is memory of the GPU.
struct MoeTilesArgs {
  const formats::Bf16* x = nullptr;          // [num_tokens, hidden], 16-byte aligned
  const std::int32_t* slice_offs = nullptr;  // [num_experts + 1]
  const std::int32_t* gather = nullptr;      // [num_tokens * top_k]
  const std::int32_t* scatter = nullptr;     // [num_tokens, top_k]; -1: on another rank
  const float* weights = nullptr;            // [num_tokens, top_k]
  float* out = nullptr;                      // [num_tokens, hidden], added to; 16-byte aligned
  Mxfp4Tiles gate_up;                        // rows 2 * intermediate, cols hidden
  Mxfp4Tiles down;                           // rows hidden, cols intermediate
  std::int32_t num_tokens = 0;
  std::int32_t hidden = 0;        // multiple of 32
  std::int32_t intermediate = 0;  // multiple of 32
  std::int32_t num_experts = 0;
  std::int32_t top_k = 0;
  float alpha = 1.702F;
  float limit = 7.0F;
  std::span<std::byte> workspace;  // >= moe_tiles_workspace_bytes(), 256-byte aligned
};

Status moe_tiles(const MoeTilesArgs& args, const Exec& exec);
std::int64_t moe_tiles_workspace_bytes(const MoeTilesArgs& args);

// Parts of the workspace.
struct MoeTilesWorkspace {
  formats::Bf16* h = nullptr;  // [num_tokens * top_k, intermediate]
  float* y = nullptr;          // [num_tokens * top_k, hidden]
};
MoeTilesWorkspace moe_tiles_workspace(const MoeTilesArgs& args);

// Which kernel: measured boundaries, docs/kernels/moe.md.
enum class MoeTilesForm : std::uint8_t { kStream8, kStream16, kGrouped48, kGrouped192 };
MoeTilesForm moe_tiles_form(std::int32_t num_tokens, std::int32_t top_k, std::int32_t num_experts);
// Name of its table row.
const char* moe_tiles_form_name(MoeTilesForm form);

// Every kernel of this build: none without CUDA.
std::span<const Instance<MoeTilesArgs>> moe_tiles_instances();

}  // namespace nibble::kernels
