#include "kernels/attention/attention_cpu.h"

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "kernels/attention/attention_block.h"
#include "kernels/common/parallel.h"

namespace nibble::kernels {
namespace {

// Split calls have fewer blocks than kSplitBelow per worker, and take kWaveItems chunks per worker
// between two barriers.
constexpr std::int64_t kSplitBelow = 2;
constexpr std::int64_t kWaveItems = 4;
// Products of attention that cost as much as touching one element.
constexpr std::int64_t kProductsPerElem = 16;

std::int64_t blocks_per_head(const AttentionArgs& args, const AttentionSequence& sequence) {
  const std::int64_t queries =
      std::int64_t{sequence.num_rows} * (args.num_heads / args.num_kv_heads);
  return (queries + kBlockQueries - 1) / kBlockQueries;
}

// Finds blocks by number; numbers that rise cost one pass over the sequences in all.
class BlockCursor {
 public:
  explicit BlockCursor(const AttentionArgs& args) : args_(args) {}

  QueryBlock at(std::int64_t index) {
    std::int64_t count = blocks_here();
    while (index >= first_ + count) {
      first_ += count;
      ++sequence_;
      count = blocks_here();
    }
    const AttentionSequence& sequence = args_.sequences[sequence_];
    const std::int64_t per_head = count / args_.num_kv_heads;
    const std::int32_t queries = sequence.num_rows * (args_.num_heads / args_.num_kv_heads);
    const auto from = static_cast<std::int32_t>((index - first_) % per_head * kBlockQueries);
    return {.args = &args_,
            .sequence = &sequence,
            .kv_head = static_cast<std::int32_t>((index - first_) / per_head),
            .first_query = from,
            .num_queries = std::min(kBlockQueries, queries - from)};
  }

 private:
  std::int64_t blocks_here() const {
    return blocks_per_head(args_, args_.sequences[sequence_]) * args_.num_kv_heads;
  }

  const AttentionArgs& args_;
  std::size_t sequence_ = 0;
  std::int64_t first_ = 0;  // number of the sequence's first block
};

struct Totals {
  std::int64_t num_blocks = 0;
  std::int32_t most_chunks = 0;  // of any block, at most
  std::int64_t products = 0;     // elements of queries times keys, about
};

Totals measure(const AttentionArgs& args) {
  Totals totals;
  for (const AttentionSequence& sequence : args.sequences) {
    if (sequence.num_rows == 0) {
      continue;
    }
    totals.num_blocks += blocks_per_head(args, sequence) * args.num_kv_heads;
    const std::int32_t last = sequence.first_position + sequence.num_rows;
    const std::int32_t seen = args.window == 0 ? last : std::min(last, args.window);
    totals.most_chunks = std::max(totals.most_chunks, (seen + kBlockQueries) / kChunkKeys + 2);
    totals.products += std::int64_t{sequence.num_rows} * seen * args.num_heads * args.head_dim;
  }
  return totals;
}

// The workspace: scratch and two partial results for each worker, then the slots of split calls.
class Workspace {
 public:
  explicit Workspace(const AttentionArgs& args)
      : head_dim_(args.head_dim), base_(reinterpret_cast<float*>(args.workspace.data())) {}

  static std::int64_t floats_per_worker(std::int32_t head_dim) {
    return block_scratch_floats(head_dim) + 2 * partial_floats(head_dim);
  }
  float* scratch(int worker) const { return base_ + worker * floats_per_worker(head_dim_); }
  float* partial(int worker) const { return scratch(worker) + block_scratch_floats(head_dim_); }
  float* total(int worker) const { return partial(worker) + partial_floats(head_dim_); }
  float* slot(int workers, std::int64_t index) const {
    return scratch(workers) + index * partial_floats(head_dim_);
  }

 private:
  std::int32_t head_dim_;
  float* base_;
};

void attend_block(const QueryBlock& block, const Workspace& workspace, int worker) {
  const AttentionBlockOps& ops = attention_block_ops();
  float* total = workspace.total(worker);
  const std::int32_t first = block.first_chunk();
  ops.attend_chunk(block, first, workspace.scratch(worker), total);
  for (std::int32_t i = 1; i < block.num_chunks(); ++i) {
    ops.attend_chunk(block, first + i, workspace.scratch(worker), workspace.partial(worker));
    ops.merge(block, workspace.partial(worker), total);
  }
  ops.finish(block, total);
}

// A block is one piece of work.
void run_blocks(const AttentionArgs& args, ThreadPool& pool, std::int64_t num_blocks) {
  const Workspace workspace(args);
  std::atomic<std::int64_t> next = 0;
  pool.run([&](int worker) {
    BlockCursor cursor(args);
    for (;;) {
      const std::int64_t index = next.fetch_add(1, std::memory_order_relaxed);
      if (index >= num_blocks) {
        return;
      }
      attend_block(cursor.at(index), workspace, worker);
    }
  });
}

// Few blocks of many keys: workers share the chunks of a block, a wave of chunks at a time so that
// the slots stay few.
class SplitCall {
 public:
  SplitCall(const AttentionArgs& args, ThreadPool& pool, const Totals& totals)
      : args_(args),
        pool_(pool),
        totals_(totals),
        workspace_(args),
        width_(static_cast<std::int32_t>((kWaveItems * pool.size() + totals.num_blocks - 1) /
                                         totals.num_blocks)) {}

  void run() {
    for (std::int32_t from = 0; from < totals_.most_chunks; from += width_) {
      pool_.run([&](int worker) { attend_wave(worker, from); });
      pool_.run_split(totals_.num_blocks, 1,
                      [&](int /*worker*/, Range blocks) { fold_wave(blocks, from); });
    }
  }

 private:
  float* total(std::int64_t block) { return workspace_.slot(pool_.size(), block); }
  float* partial(std::int64_t block, std::int32_t i) {
    return workspace_.slot(pool_.size(), totals_.num_blocks + block * width_ + i);
  }

  void attend_wave(int worker, std::int32_t from) {
    BlockCursor cursor(args_);
    for (std::int64_t item = worker; item < totals_.num_blocks * width_; item += pool_.size()) {
      const QueryBlock block = cursor.at(item / width_);
      const auto i = static_cast<std::int32_t>(item % width_);
      if (from + i < block.num_chunks()) {
        attention_block_ops().attend_chunk(
            block, block.first_chunk() + from + i, workspace_.scratch(worker),
            from + i == 0 ? total(item / width_) : partial(item / width_, i));
      }
    }
  }

  void fold_wave(Range blocks, std::int32_t from) {
    BlockCursor cursor(args_);
    for (std::int64_t index = blocks.begin; index < blocks.end; ++index) {
      const QueryBlock block = cursor.at(index);
      const std::int32_t end = std::min(from + width_, block.num_chunks());
      for (std::int32_t i = std::max(from, 1); i < end; ++i) {
        attention_block_ops().merge(block, partial(index, i - from), total(index));
      }
      if (end == block.num_chunks() && from < end) {
        attention_block_ops().finish(block, total(index));
      }
    }
  }

  const AttentionArgs& args_;
  ThreadPool& pool_;
  const Totals& totals_;
  Workspace workspace_;
  std::int32_t width_;  // chunks of a block in a wave
};

}  // namespace

// A split call has fewer blocks than kSplitBelow per worker; their chunks in a wave are kWaveItems
// per worker, rounded up to whole chunks for every block.
std::int64_t attention_cpu_workspace_bytes(std::int32_t head_dim, int num_workers) {
  const std::int64_t slots = (kSplitBelow + kWaveItems + kSplitBelow) * num_workers;
  return static_cast<std::int64_t>(sizeof(float)) *
         (Workspace::floats_per_worker(head_dim) * num_workers + slots * partial_floats(head_dim));
}

Status attention_cpu(const AttentionArgs& args, const Exec& exec) {
  const int workers = num_workers(exec);
  const std::int64_t want = attention_cpu_workspace_bytes(args.head_dim, workers);
  if (static_cast<std::int64_t>(args.workspace.size()) < want) {
    return error(Code::kInvalidArgument,
                 "attention: want a workspace of {} bytes for {} workers, got {}", want, workers,
                 args.workspace.size());
  }
  const Totals totals = measure(args);
  if (workers == 1 || totals.products < kInlineElems * kProductsPerElem) {
    BlockCursor cursor(args);
    for (std::int64_t index = 0; index < totals.num_blocks; ++index) {
      attend_block(cursor.at(index), Workspace(args), 0);
    }
  } else if (totals.num_blocks < kSplitBelow * workers && totals.most_chunks > 2) {
    SplitCall(args, *exec.pool, totals).run();
  } else {
    run_blocks(args, *exec.pool, totals.num_blocks);
  }
  return {};
}

}  // namespace nibble::kernels
