#include "kernels/moe/moe_tiles.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace nibble::kernels {
#define NIBBLE_INSTANCE(row) extern const Instance<MoeTilesArgs> row;
#include "kernels/moe_tiles_instances.inc"
#undef NIBBLE_INSTANCE

namespace {

constexpr std::int64_t kAlignment = 256;

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::int64_t h_bytes(const MoeTilesArgs& args) {
  return aligned(std::int64_t{args.num_tokens} * args.top_k * args.intermediate * 2);
}

Status validate(const MoeTilesArgs& args) {
  if (args.num_tokens < 0 || args.hidden <= 0 || args.hidden % 32 != 0 || args.intermediate <= 0 ||
      args.intermediate % 32 != 0) {
    return error(Code::kInvalidArgument,
                 "moe_tiles: want hidden and intermediate positive multiples of 32, got {} and {}",
                 args.hidden, args.intermediate);
  }
  if (args.top_k < 1 || args.num_experts < args.top_k) {
    return error(Code::kInvalidArgument, "moe_tiles: want 1 to {} experts a token, got {}",
                 args.num_experts, args.top_k);
  }
  const std::int64_t wanted = moe_tiles_workspace_bytes(args);
  if (static_cast<std::int64_t>(args.workspace.size()) < wanted) {
    return error(Code::kInvalidArgument, "moe_tiles: want a workspace of {} bytes, got {}", wanted,
                 args.workspace.size());
  }
  return {};
}

}  // namespace

std::span<const Instance<MoeTilesArgs>> moe_tiles_instances() {
  static const std::vector<Instance<MoeTilesArgs>> kRows = {
#define NIBBLE_INSTANCE(row) row,
#include "kernels/moe_tiles_instances.inc"
#undef NIBBLE_INSTANCE
  };
  return kRows;
}

std::int64_t moe_tiles_workspace_bytes(const MoeTilesArgs& args) {
  return h_bytes(args) + aligned(std::int64_t{args.num_tokens} * args.top_k * args.hidden *
                                 static_cast<std::int64_t>(sizeof(float)));
}

MoeTilesWorkspace moe_tiles_workspace(const MoeTilesArgs& args) {
  std::byte* at = args.workspace.data();
  return {reinterpret_cast<formats::Bf16*>(at), reinterpret_cast<float*>(at + h_bytes(args))};
}

MoeTilesForm moe_tiles_form(std::int32_t num_tokens, std::int32_t top_k, std::int32_t num_experts) {
  const std::int64_t rows = std::int64_t{num_tokens} * top_k;
  // No expert has more rows than there are tokens, so 8 tokens never take a second pass; nor do
  // experts of 4 rows on average, mostly.
  if (num_tokens <= 8 || rows <= std::int64_t{4} * num_experts) {
    return MoeTilesForm::kStream8;
  }
  if (num_tokens <= 16 || rows <= std::int64_t{8} * num_experts) {
    return MoeTilesForm::kStream16;
  }
  // Of 40 rows on average few experts have more than the 48 of a tile.
  return rows <= std::int64_t{40} * num_experts ? MoeTilesForm::kGrouped48
                                                : MoeTilesForm::kGrouped192;
}

const char* moe_tiles_form_name(MoeTilesForm form) {
  switch (form) {
    case MoeTilesForm::kStream8: return "moe_stream_bf16_mxfp4_f32_n8_sm90";
    case MoeTilesForm::kStream16: return "moe_stream_bf16_mxfp4_f32_n16_sm90";
    case MoeTilesForm::kGrouped48: return "moe_grouped_bf16_mxfp4_f32_n48_sm90";
    case MoeTilesForm::kGrouped192: return "moe_grouped_bf16_mxfp4_f32_n192_sm90";
  }
  return "?";
}

Status moe_tiles(const MoeTilesArgs& args, const Exec& exec) {
  NIBBLE_RETURN_IF_ERROR(validate(args));
  if (args.num_tokens == 0) {
    return {};
  }
  const std::string_view wanted =
      moe_tiles_form_name(moe_tiles_form(args.num_tokens, args.top_k, args.num_experts));
  for (const Instance<MoeTilesArgs>& row : moe_tiles_instances()) {
    if (wanted == row.info.name && runs_on(row.info, exec) && row.accepts(args)) {
      return row.run(args, exec);
    }
  }
  return run_best("moe_tiles", moe_tiles_instances(), args, exec);
}

}  // namespace nibble::kernels
