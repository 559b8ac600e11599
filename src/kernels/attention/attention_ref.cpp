#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/common/cache_rows.h"

namespace nibble::kernels {
namespace {

std::int64_t row_of(const AttentionArgs& args, const AttentionSequence& sequence,
                    std::int32_t kv_head, std::int32_t position) {
  const std::int64_t page = sequence.pages[position / args.page_size - sequence.first_page];
  return cache_row(page, args.num_kv_heads, kv_head, args.page_size, position % args.page_size);
}

void attend(const AttentionArgs& args, const AttentionSequence& sequence, std::int32_t row,
            std::int32_t head) {
  const std::int32_t position = sequence.first_position + row;
  const std::int32_t first = args.window == 0 ? 0 : std::max(0, position - args.window + 1);
  const std::int32_t kv_head = head / (args.num_heads / args.num_kv_heads);
  const std::int64_t at =
      (std::int64_t{sequence.first_row + row} * args.num_heads + head) * args.head_dim;
  std::vector<double> scores;
  double largest =
      args.sinks == nullptr ? -std::numeric_limits<double>::infinity() : double{args.sinks[head]};
  for (std::int32_t key = first; key <= position; ++key) {
    const std::int64_t from = row_of(args, sequence, kv_head, key);
    double score = 0.0;
    for (std::int32_t j = 0; j < args.head_dim; ++j) {
      score += double{load_element(args.q, args.q_dtype, at + j)} *
               load_cache(args.k_cache, args.k_scales, args.kv_dtype, from, args.head_dim, j);
    }
    scores.push_back(score * args.scale);
    largest = std::max(largest, scores.back());
  }
  double total = args.sinks == nullptr ? 0.0 : std::exp(args.sinks[head] - largest);
  std::vector<double> sum(static_cast<std::size_t>(args.head_dim), 0.0);
  for (std::int32_t key = first; key <= position; ++key) {
    const double weight = std::exp(scores[static_cast<std::size_t>(key - first)] - largest);
    total += weight;
    const std::int64_t from = row_of(args, sequence, kv_head, key);
    for (std::int32_t j = 0; j < args.head_dim; ++j) {
      sum[static_cast<std::size_t>(j)] +=
          weight * load_cache(args.v_cache, args.v_scales, args.kv_dtype, from, args.head_dim, j);
    }
  }
  for (std::int32_t j = 0; j < args.head_dim; ++j) {
    const double value = sum[static_cast<std::size_t>(j)] / total;
    store_element(args.out, args.q_dtype, at + j, static_cast<float>(value));
  }
}

}  // namespace

Status attention_ref(const AttentionArgs& args) {
  for (const AttentionSequence& sequence : args.sequences) {
    for (std::int32_t row = 0; row < sequence.num_rows; ++row) {
      for (std::int32_t head = 0; head < args.num_heads; ++head) {
        attend(args, sequence, row, head);
      }
    }
  }
  return {};
}

}  // namespace nibble::kernels
