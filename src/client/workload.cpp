#include "client/workload.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "base/error.h"
#include "text/tokenizer.h"

namespace nibble::client {
namespace {

using Json = nlohmann::json;
using Generator = std::mt19937_64;

// Each a token of its own, with the blank before it, in GPT-4o's, Llama's and most other
// vocabularies.
constexpr std::array<std::string_view, 32> kCommonWords = {
    " the",   " and",    " that",   " with",  " from",  " this",  " have",  " which",
    " one",   " time",   " people", " year",  " way",   " day",   " man",   " thing",
    " world", " life",   " hand",   " part",  " place", " case",  " week",  " work",
    " point", " number", " group",  " water", " room",  " money", " story", " fact"};

struct Word {
  std::int32_t id;
  std::string text;
};

bool is_word(std::string_view bytes) {
  return bytes.size() >= 4 && bytes[0] == ' ' &&
         std::all_of(bytes.begin() + 1, bytes.end(), [](char c) { return c >= 'a' && c <= 'z'; });
}

// Tokens that are a blank and letters, and that their own text encodes to: pre-tokenizers split
// before the blank, so that a text of them has as many tokens as words.
std::vector<Word> words_of(const text::Tokenizer& tokenizer) {
  std::vector<Word> words;
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view bytes = tokenizer.token_bytes(id);
    if (!is_word(bytes) || tokenizer.is_special(id)) {
      continue;
    }
    if (tokenizer.encode(bytes, text::SpecialTokens::kAsText) == std::vector<std::int32_t>{id}) {
      words.push_back({id, std::string(bytes)});
    }
  }
  return words;
}

std::int32_t draw_length(std::int32_t length, double ratio, std::int32_t least,
                         Generator& generator) {
  const auto low = static_cast<std::int32_t>(std::floor(length * (1.0 - ratio)));
  const auto high = static_cast<std::int32_t>(std::ceil(length * (1.0 + ratio)));
  std::uniform_int_distribution<std::int32_t> drawn(std::max(low, least), std::max(high, least));
  return drawn(generator);
}

std::int32_t count_tokens(const text::Tokenizer& tokenizer, const std::string& text) {
  return static_cast<std::int32_t>(tokenizer.encode(text, text::SpecialTokens::kAsText).size());
}

// Shuffles, then repeats until there are `count`.
std::vector<Prompt> chosen(std::vector<Prompt> prompts, std::int32_t count, Generator& generator) {
  std::shuffle(prompts.begin(), prompts.end(), generator);
  const std::size_t given = prompts.size();
  const auto wanted = static_cast<std::size_t>(count);
  prompts.reserve(wanted);
  while (prompts.size() < wanted) {
    prompts.push_back(prompts[prompts.size() % given]);
  }
  prompts.resize(wanted);
  return prompts;
}

Result<Prompt> custom_prompt(std::string_view line, std::size_t number, std::int32_t output_len) {
  const Json json = Json::parse(line, nullptr, false);
  const auto prompt = json.is_object() ? json.find("prompt") : json.end();
  if (!json.is_object() || prompt == json.end() || !prompt->is_string()) {
    return error(Code::kCorrupt, "line {}: want {{\"prompt\": \"...\"}}, found '{}'", number,
                 line.substr(0, 80));
  }
  Prompt made{.text = prompt->get<std::string>(), .output_len = output_len};
  if (const auto wanted = json.find("output_tokens"); wanted != json.end()) {
    if (!wanted->is_number_integer() || *wanted < 1 || *wanted > 1 << 24) {
      return error(Code::kCorrupt,
                   "line {}: output_tokens: want a whole number of at least 1, found {}", number,
                   wanted->dump().substr(0, 80));
    }
    made.output_len = wanted->get<std::int32_t>();
  }
  return made;
}

// The texts of the first two turns; empty when there are not two.
std::pair<std::string, std::string> first_turns(const Json& entry) {
  const auto turns = entry.is_object() ? entry.find("conversations") : entry.end();
  if (!entry.is_object() || turns == entry.end() || !turns->is_array() || turns->size() < 2) {
    return {};
  }
  const auto value = [](const Json& turn) {
    const auto found = turn.is_object() ? turn.find("value") : turn.end();
    return turn.is_object() && found != turn.end() && found->is_string() ? found->get<std::string>()
                                                                         : std::string();
  };
  return {value((*turns)[0]), value((*turns)[1])};
}

}  // namespace

Result<std::vector<Prompt>> random_prompts(const RandomShape& shape, std::int32_t count,
                                           std::uint64_t seed, const text::Tokenizer* tokenizer) {
  std::vector<Word> words;
  if (tokenizer != nullptr) {
    words = words_of(*tokenizer);
  } else {
    for (const std::string_view word : kCommonWords) {
      words.push_back({-1, std::string(word)});
    }
  }
  if (words.size() < 2) {
    return error(Code::kUnsupported,
                 "want a vocabulary with tokens that are a blank and lower-case letters, found {} "
                 "such tokens of {}",
                 words.size(), tokenizer->vocab_size());
  }
  Generator generator(seed);
  std::uniform_int_distribution<std::size_t> pick(0, words.size() - 1);
  std::vector<Prompt> prompts(static_cast<std::size_t>(count));
  for (Prompt& prompt : prompts) {
    prompt.num_tokens = draw_length(shape.input_len, shape.range_ratio, 1, generator);
    prompt.output_len = draw_length(shape.output_len, shape.range_ratio, 1, generator);
    for (std::int32_t i = 0; i < prompt.num_tokens; ++i) {
      const Word& word = words[pick(generator)];
      prompt.text += word.text;
      if (tokenizer != nullptr) {
        prompt.ids.push_back(word.id);
      }
    }
  }
  return prompts;
}

Result<std::vector<Prompt>> custom_prompts(std::string_view jsonl, std::int32_t output_len,
                                           std::int32_t count, std::uint64_t seed,
                                           const text::Tokenizer* tokenizer) {
  std::vector<Prompt> prompts;
  for (std::size_t number = 1; !jsonl.empty(); ++number) {
    const std::size_t end = std::min(jsonl.find('\n'), jsonl.size());
    const std::string_view line = jsonl.substr(0, end);
    jsonl.remove_prefix(std::min(end + 1, jsonl.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) {
      continue;
    }
    NIBBLE_ASSIGN_OR_RETURN(Prompt prompt, custom_prompt(line, number, output_len));
    prompt.num_tokens = tokenizer != nullptr ? count_tokens(*tokenizer, prompt.text) : 0;
    prompts.push_back(std::move(prompt));
  }
  if (prompts.empty()) {
    return error(Code::kCorrupt, "want lines of {{\"prompt\": \"...\"}}, found none");
  }
  Generator generator(seed);
  return chosen(std::move(prompts), count, generator);
}

Result<std::vector<Prompt>> sharegpt_prompts(std::string_view json, std::int32_t output_len,
                                             std::int32_t count, std::uint64_t seed,
                                             const text::Tokenizer& tokenizer) {
  constexpr std::int32_t kLeast = 4;
  constexpr std::int32_t kMostOfPrompt = 1024;
  constexpr std::int32_t kMostOfPair = 2048;
  Json list = Json::parse(json, nullptr, false);
  if (!list.is_array()) {
    return error(Code::kCorrupt, "want a list of {{\"conversations\": [...]}}, found '{}'",
                 json.substr(0, 80));
  }
  std::vector<std::size_t> order(list.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
  }
  Generator generator(seed);
  std::shuffle(order.begin(), order.end(), generator);
  std::vector<Prompt> prompts;
  for (const std::size_t index : order) {
    if (prompts.size() == static_cast<std::size_t>(count)) {
      break;  // files are large: only what is used is counted
    }
    auto [asked, answered] = first_turns(list[index]);
    Prompt prompt{.text = std::move(asked)};
    prompt.num_tokens = count_tokens(tokenizer, prompt.text);
    const std::int32_t length = count_tokens(tokenizer, answered);
    prompt.output_len = output_len > 0 ? output_len : length;
    const bool is_short = prompt.num_tokens < kLeast || (output_len == 0 && length < kLeast);
    if (!is_short && prompt.num_tokens <= kMostOfPrompt &&
        prompt.num_tokens + prompt.output_len <= kMostOfPair) {
      prompts.push_back(std::move(prompt));
    }
  }
  if (prompts.empty()) {
    return error(Code::kCorrupt,
                 "want conversations of two turns with 4 to 1,024 tokens of prompt, found none in "
                 "{} entries",
                 list.size());
  }
  return chosen(std::move(prompts), count, generator);
}

}  // namespace nibble::client
