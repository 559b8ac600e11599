// What constrained output costs for each token, with a given vocabulary:
//
//   bench_token_masks TOKENIZER_FOLDER [ROUNDS]
//
// Follows tokenised sample answers through their grammar. "cold" is the first answer under a fresh
// grammar, which computes the mask of each state; "warm" the following ones. Times are processor
// time of mask and accept together, for one token. "step" is all that a mask adds to a sampler,
// which also writes it into the logits.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "engine/sampler.h"
#include "grammar/harmony_grammar.h"
#include "grammar/matcher.h"
#include "text/harmony.h"
#include "text/tokenizer.h"

namespace nibble::grammar {
namespace {

using Kind = TextFormat::Kind;

struct Sample {
  const char* name;
  AnswerRules rules;
  std::string answer;  // behind START "assistant", control tokens spelled
};

// Of this thread's work alone, so that a busy machine does not show.
double cpu_us() {
  timespec now{};
  (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e6 * static_cast<double>(now.tv_sec) + 1e-3 * static_cast<double>(now.tv_nsec);
}
double us_since(double begin) { return cpu_us() - begin; }

const char* const kPerson = R"({"type": "object", "properties": {
  "name": {"type": "string", "minLength": 1, "maxLength": 64},
  "age": {"type": "integer", "minimum": 0, "maximum": 150},
  "email": {"type": "string", "format": "email"},
  "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 8},
  "address": {"type": "object", "properties": {"street": {"type": "string"}, "zip":
    {"type": "string", "pattern": "^[0-9]{5}$"}}, "required": ["street", "zip"],
    "additionalProperties": false},
  "score": {"type": ["number", "null"], "minimum": 0, "maximum": 1}},
  "required": ["name", "age", "email", "tags", "address", "score"], "additionalProperties": false})";

std::string list_of_objects() {
  std::string text = "{\n  \"rows\": [";
  for (int i = 0; i < 60; ++i) {
    text += (i == 0 ? "\n" : ",\n") + std::string("    {\"id\": ") + std::to_string(i) +
            ", \"title\": \"Row number " + std::to_string(i * 37) +
            " of a longer table, with some words\", \"flags\": [true, null, 0.5], \"sub\": {\"k\": "
            "\"v\\n\"}}";
  }
  return text + "\n  ]\n}";
}

std::vector<Sample> samples() {
  const std::string json = "<|channel|>final<|message|>";
  const std::string person =
      R"({"name": "Ada Lovelace", "age": 36, "email": "ada@example.org", "tags": ["mathematics",)"
      R"( "engines"], "address": {"street": "12 St James's Square", "zip": "12345"}, "score": 0.97})";
  std::string reasoning;
  for (int i = 0; i < 40; ++i) {
    reasoning += "The user wants a person, so I should think about which fields are needed. ";
  }
  AnswerRules tools;
  tools.must_call = true;
  tools.tools.push_back({"lookup", {Kind::kJsonSchema, kPerson}});
  tools.tools.push_back({"other", {}});
  return {
      {"reasoning",
       {.answer = {Kind::kJsonObject, {}}},
       "<|channel|>analysis<|message|>" + reasoning + "<|end|><|start|>assistant" + json +
           "{}<|return|>"},
      {"json_object", {.answer = {Kind::kJsonObject, {}}}, json + list_of_objects() + "<|return|>"},
      {"json_schema", {.answer = {Kind::kJsonSchema, kPerson}}, json + person + "<|return|>"},
      {"strict_tool", tools,
       "<|channel|>commentary to=functions.lookup <|constrain|>json<|message|>" + person +
           "<|call|>"},
  };
}

// Microseconds of each token; stops the program where the answer is not admitted.
std::vector<double> follow(const std::shared_ptr<CompiledGrammar>& compiled,
                           const std::vector<std::int32_t>& ids) {
  Matcher matcher(compiled);
  std::vector<std::uint32_t> bits(
      static_cast<std::size_t>(compiled->vocabulary().trie->vocab() + 31) / 32);
  std::vector<double> times;
  for (const std::int32_t id : ids) {
    const double begin = cpu_us();
    matcher.mask(bits);
    const bool is_allowed = (bits[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1U) != 0;
    const Status accepted = matcher.accept(id);
    times.push_back(us_since(begin));
    if (!is_allowed || !accepted.ok()) {
      std::fprintf(stderr, "token %d at %zu is not allowed\n", id, times.size());
      std::exit(1);
    }
  }
  return times;
}

// The mask of a grammar that follows a given answer, whatever the sampler chose.
class ScriptedMask : public engine::TokenMask {
 public:
  ScriptedMask(std::shared_ptr<CompiledGrammar> compiled, const std::vector<std::int32_t>& ids)
      : matcher_(std::move(compiled)), ids_(ids) {}
  bool mask(std::span<std::uint32_t> bits) override {
    matcher_.mask(bits);
    return true;
  }
  Status accept(std::int32_t /*token*/) override { return matcher_.accept(ids_[at_++]); }

 private:
  Matcher matcher_;
  const std::vector<std::int32_t>& ids_;
  std::size_t at_ = 0;
};

// Microseconds of a greedy sampler for each token, masked or not.
double sampler_us(const std::shared_ptr<CompiledGrammar>& compiled,
                  const std::vector<std::int32_t>& ids, bool is_masked) {
  const std::int32_t vocab = compiled->vocabulary().trie->vocab();
  engine::Sampler sampler(vocab);
  engine::Sequence sequence;
  sequence.request.sampling.temperature = 0.0F;
  if (is_masked) {
    sequence.request.mask = std::make_shared<ScriptedMask>(compiled, ids);
  }
  std::vector<float> logits(static_cast<std::size_t>(vocab), 1.0F);
  const double begin = cpu_us();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!sampler.next_token(sequence, logits)) {
      std::exit(1);
    }
    std::fill(logits.begin(), logits.end(), 1.0F);
  }
  return us_since(begin) / static_cast<double>(ids.size());
}

void print(const char* name, const char* what, std::vector<double> times) {
  std::sort(times.begin(), times.end());
  double sum = 0.0;
  for (const double time : times) {
    sum += time;
  }
  const std::size_t count = times.size();
  std::printf("%-12s %-5s %6zu tokens  mean %8.1f us  median %8.1f  p99 %8.1f  max %8.1f\n", name,
              what, count, sum / static_cast<double>(count), times[count / 2],
              times[count * 99 / 100], times.back());
}

int run(const std::string& folder, int rounds) {
  const Result<text::Tokenizer> tokenizer = text::Tokenizer::load(folder);
  if (!tokenizer) {
    std::fprintf(stderr, "%s\n", tokenizer.error().message().c_str());
    return 3;
  }
  const text::HarmonyTokens tokens = text::HarmonyTokens::find(*tokenizer).value();
  const TokenTrie::TokenBytes bytes = [&](std::int32_t id) {
    return tokenizer->is_special(id) ? std::string_view() : tokenizer->token_bytes(id);
  };
  const double begin = cpu_us();
  TokenTrie trie = TokenTrie::create(tokenizer->vocab_size(), bytes).value();
  std::printf("vocabulary %d, trie of %zu nodes in %.0f ms\n", trie.vocab(), trie.nodes().size(),
              us_since(begin) / 1000.0);
  const auto vocabulary = std::make_shared<const Vocabulary>(
      Vocabulary{std::make_shared<const TokenTrie>(std::move(trie)), harmony_controls(tokens)});
  for (const Sample& sample : samples()) {
    const double compile = cpu_us();
    const auto grammar = harmony_grammar(sample.rules).value();
    const double compile_us = us_since(compile);
    const double prepare = cpu_us();
    const auto compiled =
        std::make_shared<CompiledGrammar>(grammar, vocabulary, std::size_t{16} << 20U);
    const double prepare_us = us_since(prepare);
    const auto ids = tokenizer->encode(sample.answer, text::SpecialTokens::kRecognise);
    std::printf("%-12s compile %.1f ms, %zu states, prepare %.1f ms\n", sample.name,
                compile_us / 1000.0, grammar->num_states(), prepare_us / 1000.0);
    print(sample.name, "cold", follow(compiled, ids));
    std::vector<double> warm;
    for (int round = 0; round < rounds; ++round) {
      const std::vector<double> times = follow(compiled, ids);
      warm.insert(warm.end(), times.begin(), times.end());
    }
    print(sample.name, "warm", warm);
    const double free_us = sampler_us(compiled, ids, false);
    std::printf("%-12s step  %6zu tokens  mean %8.1f us\n", sample.name, ids.size(),
                sampler_us(compiled, ids, true) - free_us);
  }
  return 0;
}

}  // namespace
}  // namespace nibble::grammar

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: bench_token_masks TOKENIZER_FOLDER [ROUNDS]\n");
    return 2;
  }
  return nibble::grammar::run(argv[1], argc > 2 ? std::atoi(argv[2]) : 20);
}
