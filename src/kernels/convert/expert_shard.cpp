#include "kernels/convert/expert_shard.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace nibble::kernels {
namespace {

constexpr std::int64_t kBlock = 32;

// One rectangle of bytes in each expert, between a whole tensor and a shard of it.
struct Rectangle {
  std::int64_t rows = 0;         // to copy
  std::int64_t row_bytes = 0;    // to copy
  std::int64_t whole_rows = 0;   // of the whole tensor
  std::int64_t whole_bytes = 0;  // of its rows
  std::int64_t first_row = 0;    // where the shard begins in it
  std::int64_t first_byte = 0;
  std::int64_t shard_rows = 0;
  std::int64_t shard_bytes = 0;
};

const std::byte* bytes_of(const void* data) { return static_cast<const std::byte*>(data); }

void cut(const void* whole, void* shard, std::int32_t num_experts, const Rectangle& r) {
  auto* to = static_cast<std::byte*>(shard);
  std::memset(to, 0, static_cast<std::size_t>(num_experts * r.shard_rows * r.shard_bytes));
  for (std::int64_t e = 0; e < num_experts; ++e) {
    for (std::int64_t row = 0; row < r.rows; ++row) {
      const std::int64_t source = (e * r.whole_rows + r.first_row + row) * r.whole_bytes;
      std::memcpy(to + (e * r.shard_rows + row) * r.shard_bytes,
                  bytes_of(whole) + source + r.first_byte, static_cast<std::size_t>(r.row_bytes));
    }
  }
}

void paste(const void* shard, void* whole, std::int32_t num_experts, const Rectangle& r) {
  auto* to = static_cast<std::byte*>(whole);
  for (std::int64_t e = 0; e < num_experts; ++e) {
    for (std::int64_t row = 0; row < r.rows; ++row) {
      const std::int64_t target = (e * r.whole_rows + r.first_row + row) * r.whole_bytes;
      std::memcpy(to + target + r.first_byte,
                  bytes_of(shard) + (e * r.shard_rows + row) * r.shard_bytes,
                  static_cast<std::size_t>(r.row_bytes));
    }
  }
}

// Rows of the shard, all columns.
Rectangle gate_up_rows(const ExpertSizes& sizes, const ExpertShard& shard, std::int64_t row_bytes) {
  return {.rows = 2 * shard.intermediate.value,
          .row_bytes = row_bytes,
          .whole_rows = 2 * sizes.intermediate,
          .whole_bytes = row_bytes,
          .first_row = 2 * kBlock * shard.first_block,
          .shard_rows = 2 * shard.padded.value,
          .shard_bytes = row_bytes};
}

// All rows, columns of the shard; `block_bytes` for each block of 32 columns.
Rectangle down_cols(const ExpertSizes& sizes, const ExpertShard& shard, std::int64_t block_bytes) {
  return {.rows = sizes.hidden,
          .row_bytes = shard.num_blocks * block_bytes,
          .whole_rows = sizes.hidden,
          .whole_bytes = sizes.intermediate / kBlock * block_bytes,
          .first_byte = shard.first_block * block_bytes,
          .shard_rows = sizes.hidden,
          .shard_bytes = shard.padded.value / kBlock * block_bytes};
}

Rectangle down_bias_row(const ExpertSizes& sizes, const ExpertShard& shard) {
  const std::int64_t bytes = sizes.hidden * std::int64_t{sizeof(formats::Bf16)};
  return {.rows = shard.has_down_bias ? 1 : 0,
          .row_bytes = bytes,
          .whole_rows = 1,
          .whole_bytes = bytes,
          .shard_rows = 1,
          .shard_bytes = bytes};
}

Status check_sizes(const ExpertSizes& sizes, const ExpertShard& shard) {
  const std::int64_t end = kBlock * (shard.first_block + shard.num_blocks);
  if (sizes.hidden % kBlock != 0 || sizes.intermediate % kBlock != 0 || end > sizes.intermediate) {
    return error(Code::kInvalidArgument,
                 "expert shard: want hidden and intermediate in blocks of 32 and values up to {}, "
                 "got hidden {}, intermediate {}",
                 end, sizes.hidden, sizes.intermediate);
  }
  return {};
}

using Move = void (*)(const void* from, void* to, std::int32_t num_experts, const Rectangle& r);

void move_all(const Mxfp4ExpertsIn& from, const Mxfp4ExpertsOut& to, const ExpertSizes& sizes,
              const ExpertShard& shard, Move move) {
  const std::int32_t e = sizes.num_experts;
  move(from.gate_up_values, to.gate_up_values, e, gate_up_rows(sizes, shard, sizes.hidden / 2));
  move(from.gate_up_scales, to.gate_up_scales, e,
       gate_up_rows(sizes, shard, sizes.hidden / kBlock));
  move(from.gate_up_bias, to.gate_up_bias, e, gate_up_rows(sizes, shard, sizeof(formats::Bf16)));
  move(from.down_values, to.down_values, e, down_cols(sizes, shard, kBlock / 2));
  move(from.down_scales, to.down_scales, e, down_cols(sizes, shard, 1));
  move(from.down_bias, to.down_bias, e, down_bias_row(sizes, shard));
}

}  // namespace

Result<ExpertShard> plan_expert_shard(const ShardRequest& request) {
  if (request.intermediate <= 0 || request.intermediate % kBlock != 0) {
    return error(Code::kInvalidArgument,
                 "intermediate size: want a positive multiple of the block of 32, got {}",
                 request.intermediate);
  }
  const std::int64_t blocks = request.intermediate / kBlock;
  if (request.num_ranks < 1 || request.num_ranks > blocks) {
    return error(Code::kInvalidArgument,
                 "tensor parallel size: want 1 to {} for {} values in blocks of 32, got {}", blocks,
                 request.intermediate, request.num_ranks);
  }
  if (request.rank < 0 || request.rank >= request.num_ranks) {
    return error(Code::kInvalidArgument, "tensor parallel rank: want 0 to {}, got {}",
                 request.num_ranks - 1, request.rank);
  }
  if (request.padded_multiple < 0 || request.padded_multiple % kBlock != 0) {
    return error(Code::kInvalidArgument, "padding of a shard: want a multiple of 32 or 0, got {}",
                 request.padded_multiple);
  }
  const std::int64_t most = (blocks + request.num_ranks - 1) / request.num_ranks;
  const std::int64_t num_larger = blocks - (most - 1) * request.num_ranks;
  ExpertShard shard;
  shard.rank = request.rank;
  shard.num_ranks = request.num_ranks;
  shard.num_blocks = request.rank < num_larger ? most : most - 1;
  shard.first_block = request.rank * most - std::max<std::int64_t>(0, request.rank - num_larger);
  shard.intermediate = formats::LogicalCols(kBlock * shard.num_blocks);
  shard.padded = request.padded_multiple == 0
                     ? formats::pad(shard.intermediate, kBlock)
                     : formats::pad(formats::LogicalCols(kBlock * most), request.padded_multiple);
  shard.has_down_bias = request.rank == 0;
  return shard;
}

Status shard_experts(const Mxfp4ExpertsIn& from, const ExpertSizes& sizes, const ExpertShard& shard,
                     const Mxfp4ExpertsOut& to) {
  NIBBLE_RETURN_IF_ERROR(check_sizes(sizes, shard));
  move_all(from, to, sizes, shard, &cut);
  return {};
}

Status unshard_experts(const Mxfp4ExpertsIn& from, const ExpertSizes& sizes,
                       const ExpertShard& shard, const Mxfp4ExpertsOut& to) {
  NIBBLE_RETURN_IF_ERROR(check_sizes(sizes, shard));
  move_all(from, to, sizes, shard, &paste);
  return {};
}

}  // namespace nibble::kernels
