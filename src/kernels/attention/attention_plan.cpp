#include "kernels/attention/attention_plan.h"

#include <algorithm>
#include <bit>

namespace nibble::kernels {
namespace {

// Partial results of a call: beyond this a second wave costs nothing beside what the first reads.
constexpr std::int64_t kEnoughBytes = std::int64_t{64} << 20U;
// Blocks fold this many chunks themselves rather than through memory: a window of 128 keys lies in
// two chunks at most.
constexpr std::int32_t kFoldedByBlock = 2;

// 16,384 keys: 4 MB, which one block reads in some 50 us.
constexpr std::int32_t kMostStreamedChunks = 64;
constexpr std::int64_t kStreamsPerSm = 2;

std::int32_t chunks_of(const AttentionArgs& args, std::int32_t position) {
  const std::int32_t first = args.window == 0 ? 0 : std::max(0, position - args.window + 1);
  return position / kGpuChunkKeys - first / kGpuChunkKeys + 1;
}

std::int64_t sequence_bytes(const AttentionArgs& args, std::int32_t chunks) {
  return std::int64_t{args.num_heads} * chunks * kGpuPartialBytes;
}

}  // namespace

AttentionCudaPlan plan_attention_cuda(const AttentionArgs& args) {
  AttentionCudaPlan plan;
  for (const AttentionSequence& sequence : args.sequences) {
    if (sequence.num_rows == 1) {
      ++plan.decode_sequences;
      plan.max_chunks = std::max(plan.max_chunks, chunks_of(args, sequence.first_position));
    } else {
      plan.prefill_rows = std::max(plan.prefill_rows, sequence.num_rows);
    }
  }
  // Rounded up, so that a captured launch serves many steps.
  plan.max_chunks =
      static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint32_t>(plan.max_chunks)));
  const auto count = static_cast<std::int64_t>(args.sequences.size());
  plan.chunks_per_block = plan.max_chunks <= kFoldedByBlock ? plan.max_chunks : 1;
  const auto room = static_cast<std::int64_t>(args.workspace.size());
  plan.wave = static_cast<std::int32_t>(
      plan.chunks_per_block == plan.max_chunks
          ? count
          : std::min(count, room / sequence_bytes(args, plan.max_chunks)));
  return plan;
}

bool is_streamed(const AttentionCudaPlan& plan, std::int32_t num_kv_heads, std::int32_t num_sms) {
  return std::int64_t{plan.decode_sequences} * num_kv_heads >= kStreamsPerSm * num_sms &&
         plan.max_chunks <= kMostStreamedChunks;
}

std::int64_t attention_cuda_workspace_bytes(const AttentionArgs& args, std::int32_t num_rows,
                                            std::int32_t max_position) {
  std::int32_t chunks = std::max(0, max_position - 1) / kGpuChunkKeys + 1;
  if (args.window > 0) {  // wherever it lies
    chunks = std::min(chunks, (args.window + kGpuChunkKeys - 2) / kGpuChunkKeys + 1);
  }
  chunks = static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint32_t>(chunks)));
  const std::int64_t one = sequence_bytes(args, chunks);
  return std::max(one, std::min(one * num_rows, kEnoughBytes));
}

}  // namespace nibble::kernels
