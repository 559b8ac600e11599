// One request on its way through the engine.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "engine/token_request.h"
#include "kernels/sample/sample.h"
#include "model/batch_plan.h"

namespace nibble::engine {

struct PrefixNode;

struct Sequence {
  SequenceId id = 0;
  TokenRequest request;
  std::vector<std::int32_t> ids;  // prompt, then what was generated
  std::int32_t num_computed = 0;  // ids whose keys and values are in the cache
  std::int32_t num_scored = 0;    // prompt positions given to on_prompt_logits
  std::int32_t num_cached = 0;    // prompt tokens found in the cache when it was first admitted
  model::PageTable tables[model::kNumCacheGroups];
  std::vector<PrefixNode*> prefix;  // nodes that own its first pages; it owns the others itself
  std::int32_t num_attached = 0;    // of them, those found when it was admitted
  std::int32_t num_granted = 0;     // rows that it may have in the step that is being planned
  std::int32_t num_overtaken = 0;   // requests admitted before it that came later
  std::uint64_t kernels = 0;        // that computed it so far: bits of model::Model::kernel_names
  bool is_planned = false;          // has rows in the step
  bool was_admitted = false;
  std::vector<kernels::TokenCount> counts;  // kept only when penalties are on
  std::unordered_map<std::int32_t, std::size_t> count_index;

  std::int32_t num_prompt() const { return static_cast<std::int32_t>(request.prompt.size()); }
  std::int32_t num_ids() const { return static_cast<std::int32_t>(ids.size()); }
  std::int32_t num_generated() const { return num_ids() - num_prompt(); }
  std::int32_t num_remaining() const { return num_ids() - num_computed; }
  bool wants_prompt_logits() const { return request.on_prompt_logits != nullptr; }

  void count(std::int32_t token, bool is_output) {
    const auto [at, is_new] = count_index.try_emplace(token, counts.size());
    if (is_new) {
      counts.push_back({.id = token});
    }
    counts[at->second].in_output += is_output ? 1 : 0;
  }
};

}  // namespace nibble::engine
