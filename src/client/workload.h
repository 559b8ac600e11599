// Prompts to load a server with.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "nibble/status.h"

namespace nibble::text {
class Tokenizer;
}

namespace nibble::client {

struct Prompt {
  std::string text;
  std::vector<std::int32_t> ids;  // sent instead of the text where an endpoint takes ids
  std::int32_t num_tokens = 0;    // exact with a tokenizer
  std::int32_t output_len = 0;    // asked for
};

struct RandomShape {
  std::int32_t input_len = 1024;
  std::int32_t output_len = 128;
  double range_ratio = 0.0;  // lengths are even in [len (1 - ratio), len (1 + ratio)], rounded out
};

// Random English words, no two prompts alike but by chance. With a tokenizer each word is exactly
// one of its tokens, and so the length is exact; without, common words that most vocabularies hold
// as one token. kUnsupported: a vocabulary without such words.
Result<std::vector<Prompt>> random_prompts(const RandomShape& shape, std::int32_t count,
                                           std::uint64_t seed, const text::Tokenizer* tokenizer);

// Lines of {"prompt": "...", "output_tokens": N}; without N, `output_len`. Shuffled; repeated when
// fewer than `count`. kCorrupt names the line.
Result<std::vector<Prompt>> custom_prompts(std::string_view jsonl, std::int32_t output_len,
                                           std::int32_t count, std::uint64_t seed,
                                           const text::Tokenizer* tokenizer);

// ShareGPT: a list of {"conversations": [{"value"}, {"value"}, ...]}. The first turn is the prompt;
// the length of the second is asked for unless `output_len` > 0. As vLLM does, pairs below 4
// tokens, prompts above 1,024 and pairs above 2,048 are left out. The order is shuffled.
Result<std::vector<Prompt>> sharegpt_prompts(std::string_view json, std::int32_t output_len,
                                             std::int32_t count, std::uint64_t seed,
                                             const text::Tokenizer& tokenizer);

}  // namespace nibble::client
