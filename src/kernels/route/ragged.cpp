#include "kernels/route/ragged.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace nibble::kernels {
namespace {

constexpr std::int32_t kMaxSlices = 32767;       // 15 bits, so that an entry stays positive
constexpr std::int64_t kMaxBlockNumber = 32767;  // likewise

std::int32_t num_blocks(std::int32_t rows, std::int32_t block_rows) {
  return rows / block_rows + (rows % block_rows != 0 ? 1 : 0);
}

Status check_blocks(std::span<const std::int32_t> block_rows, std::int64_t rows) {
  for (const std::int32_t block : block_rows) {
    if (block < kMinBlockRows) {
      return error(Code::kInvalidArgument, "ragged: want blocks of at least {} rows, got {}",
                   kMinBlockRows, block);
    }
    if ((rows - 1) / block > kMaxBlockNumber) {
      return error(Code::kUnsupported,
                   "ragged: {} rows make block numbers above {} at {} rows a block", rows,
                   kMaxBlockNumber, block);
    }
  }
  return {};
}

Status check(const RaggedArgs& args, const RaggedOut& out) {
  const std::int64_t rows = std::int64_t{args.num_tokens} * args.top_k;
  if (args.num_experts < 1 || args.num_experts > kMaxSlices || args.top_k < 1 ||
      args.num_tokens < 0 || rows > std::numeric_limits<std::int32_t>::max()) {
    return error(Code::kInvalidArgument,
                 "ragged: want 1..{} experts, top_k >= 1 and at most 2^31 - 1 entries, got {} "
                 "experts, top_k {}, {} tokens",
                 kMaxSlices, args.num_experts, args.top_k, args.num_tokens);
  }
  if (args.num_valid_tokens < 0 || args.num_valid_tokens > args.num_tokens) {
    return error(Code::kInvalidArgument, "ragged: want 0 <= valid tokens <= {}, got {}",
                 args.num_tokens, args.num_valid_tokens);
  }
  const bool lacks_rows =
      rows > 0 && (args.ids == nullptr || out.gather == nullptr || out.scatter == nullptr ||
                   (args.weights != nullptr && out.gates == nullptr));
  const bool lacks_blocks = !args.block_rows.empty() &&
                            (out.block_offs == nullptr || (rows > 0 && out.schedule == nullptr));
  if (out.slice_sizes == nullptr || out.slice_offs == nullptr || lacks_rows || lacks_blocks) {
    return error(Code::kInvalidArgument, "ragged: an array for {} entries is null", rows);
  }
  return check_blocks(args.block_rows, rows);
}

Status count_rows(const RaggedArgs& args, std::int32_t* slice_sizes) {
  std::fill_n(slice_sizes, args.num_experts, 0);
  const std::int64_t valid = std::int64_t{args.num_valid_tokens} * args.top_k;
  for (std::int64_t flat = 0; flat < valid; ++flat) {
    const std::int32_t id = args.ids[flat];
    if (id < -1 || id >= args.num_experts) {
      return error(Code::kInvalidArgument, "ragged: id {} of token {}, slot {} is outside -1..{}",
                   id, flat / args.top_k, flat % args.top_k, args.num_experts - 1);
    }
    if (id >= 0) {
      ++slice_sizes[id];
    }
  }
  return {};
}

// Sorts entries by expert. slice_offs[e] serves as the cursor of expert e, which leaves it at the
// start of expert e + 1, so the array is moved up by one afterwards.
void sort_entries(const RaggedArgs& args, const RaggedOut& out) {
  const std::int64_t rows = std::int64_t{args.num_tokens} * args.top_k;
  const std::int64_t valid = std::int64_t{args.num_valid_tokens} * args.top_k;
  std::fill_n(out.gather, rows, -1);
  std::fill_n(out.scatter, rows, -1);
  for (std::int64_t flat = 0; flat < valid; ++flat) {
    if (const std::int32_t id = args.ids[flat]; id >= 0) {
      const std::int32_t row = out.slice_offs[id]++;
      out.gather[row] = static_cast<std::int32_t>(flat);
      out.scatter[flat] = row;
    }
  }
  std::copy_backward(out.slice_offs, out.slice_offs + args.num_experts,
                     out.slice_offs + args.num_experts + 1);
  out.slice_offs[0] = 0;
}

void write_schedule(std::span<const std::int32_t> slice_sizes, std::int32_t block_rows,
                    std::int32_t* block_offs, std::span<std::int32_t> schedule) {
  std::size_t next = 0;
  for (std::size_t slice = 0; slice < slice_sizes.size(); ++slice) {
    block_offs[slice] = static_cast<std::int32_t>(next);
    for (std::int32_t block = 0; block < num_blocks(slice_sizes[slice], block_rows); ++block) {
      schedule[next++] = block << 16 | static_cast<std::int32_t>(slice);
    }
  }
  block_offs[slice_sizes.size()] = static_cast<std::int32_t>(next);
  std::fill(schedule.begin() + static_cast<std::ptrdiff_t>(next), schedule.end(), -1);
}

void write_schedules(std::span<const std::int32_t> block_rows, std::span<const std::int32_t> sizes,
                     std::size_t places, const RaggedOut& out) {
  for (std::size_t s = 0; s < block_rows.size(); ++s) {
    write_schedule(sizes, block_rows[s], out.block_offs + s * (sizes.size() + 1),
                   {out.schedule + s * places, places});
  }
}

}  // namespace

std::int64_t max_blocks(std::int64_t rows, std::int32_t num_experts) {
  if (rows <= num_experts) {
    return rows;
  }
  // -floor(-x / 16) = ceil(x / 16) for x = rows + 1 - num_experts > 0.
  const std::int64_t beyond = rows + 1 - num_experts;
  return num_experts - 1 + (beyond + kMinBlockRows - 1) / kMinBlockRows;
}

Status build_ragged(const RaggedArgs& args, const RaggedOut& out) {
  NIBBLE_RETURN_IF_ERROR(check(args, out));
  NIBBLE_RETURN_IF_ERROR(count_rows(args, out.slice_sizes));
  out.slice_offs[0] = 0;
  for (std::int32_t e = 0; e < args.num_experts; ++e) {
    out.slice_offs[e + 1] = out.slice_offs[e] + out.slice_sizes[e];
  }
  sort_entries(args, out);
  const std::int64_t rows = std::int64_t{args.num_tokens} * args.top_k;
  for (std::int64_t row = 0; args.weights != nullptr && row < rows; ++row) {
    out.gates[row] = out.gather[row] < 0 ? 0.0F : args.weights[out.gather[row]];
  }
  write_schedules(args.block_rows, {out.slice_sizes, static_cast<std::size_t>(args.num_experts)},
                  static_cast<std::size_t>(max_blocks(rows, args.num_experts)), out);
  return {};
}

Status remap_ragged(const RemapArgs& args, const RaggedOut& out) {
  if (args.num_dst < 1 || args.num_dst > kMaxSlices) {
    return error(Code::kInvalidArgument, "ragged: want 1..{} slices after a remap, got {}",
                 kMaxSlices, args.num_dst);
  }
  NIBBLE_RETURN_IF_ERROR(check_blocks(args.block_rows, args.rows));
  std::fill_n(out.slice_sizes, args.num_dst, -1);
  for (std::size_t slice = 0; slice < args.slice_map.size(); ++slice) {
    const std::int32_t target = args.slice_map[slice];
    if (target < -1 || target >= args.num_dst) {
      return error(Code::kInvalidArgument, "ragged: slice_map[{}] is {}, want -1..{}", slice,
                   target, args.num_dst - 1);
    }
    if (target >= 0 && out.slice_sizes[target] >= 0) {
      return error(Code::kInvalidArgument, "ragged: two slices are mapped to {}", target);
    }
    if (target >= 0) {
      out.slice_sizes[target] = args.src.slice_sizes[slice];
      out.slice_offs[target] = args.src.slice_offs[slice];
    }
  }
  out.slice_offs[args.num_dst] = 0;
  for (std::int32_t slice = 0; slice < args.num_dst; ++slice) {
    if (out.slice_sizes[slice] < 0) {
      return error(Code::kInvalidArgument, "ragged: no slice is mapped to {} of {}", slice,
                   args.num_dst);
    }
    out.slice_offs[args.num_dst] += out.slice_sizes[slice];
  }
  write_schedules(args.block_rows, {out.slice_sizes, static_cast<std::size_t>(args.num_dst)},
                  static_cast<std::size_t>(max_blocks(args.rows, args.num_dst)), out);
  return {};
}

}  // namespace nibble::kernels
