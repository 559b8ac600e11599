// Any bytes as a JSON schema, and as a pattern: refused with one line, or a grammar under which a
// random answer never gets stuck.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "grammar/harmony_grammar.h"
#include "grammar/pushdown.h"
#include "grammar/regex.h"

namespace nibble::grammar {
namespace {

constexpr int kMaxSteps = 200;
constexpr Symbol kEnd = kStopSymbol + 1;

void require(bool claim, const std::string& message) {
  if (!claim) {
    std::fprintf(stderr, "%s\n", message.c_str());
    std::abort();
  }
}

// At each place some symbol can be read until the text is complete.
void walk(const Grammar& grammar, std::uint64_t draw) {
  Pushdown pushdown(grammar);
  Pushdown::Set set = pushdown.start();
  for (int step = 0; step < kMaxSteps && !set.configs.empty(); ++step) {
    draw = draw * 6364136223846793005U + 1442695040888963407U;
    const auto first = static_cast<Symbol>((draw >> 33U) % kEnd);
    Pushdown::Set next;
    for (Symbol i = 0; i < kEnd && next.is_dead(); ++i) {
      next = pushdown.step(set, static_cast<Symbol>((first + i) % kEnd));
    }
    require(!next.is_dead(), "a place in the grammar without a way on");
    set = std::move(next);
  }
}

void check(const Status& status) {
  require(status.code() == Code::kInvalidArgument, "wrong code: " + status.message());
  require(!status.message().empty(), "no reason");
}

void run(const std::string& text) {
  const auto grammar = text_grammar({TextFormat::Kind::kJsonSchema, text});
  if (grammar) {
    walk(**grammar, text.size());
  } else {
    check(grammar.error());
  }
  const bool is_short = text.size() < 64;  // a pattern comes from a JSON string, so from UTF-8
  if (is_short) {
    const auto pattern = regex_content(text);
    if (!pattern) {
      check(pattern.error());
    }
  }
}

}  // namespace
}  // namespace nibble::grammar

// NOLINTNEXTLINE(readability-identifier-naming): the fuzzer calls it by this name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t num_bytes) {
  nibble::grammar::run(std::string(reinterpret_cast<const char*>(data), num_bytes));
  return 0;
}
