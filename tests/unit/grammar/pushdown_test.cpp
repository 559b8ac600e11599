#include "grammar/pushdown.h"

#include <gtest/gtest.h>

#include <string>

#include "support/grammar_script.h"

namespace nibble::grammar {
namespace {

// rule: '(' rule ')' | '(' rule ')' | 'x' — every level can be read in two ways.
std::shared_ptr<const Grammar> ambiguous() {
  GrammarBuilder builder;
  const StateId start = builder.start_of(0);
  const StateId end = builder.add_state(0);
  builder.accept(end);
  for (int way = 0; way < 2; ++way) {
    const StateId open = builder.add_literal(start, "(");
    const StateId behind = builder.add_state(0);
    builder.add_call(open, {.rule = 0, .target = behind});
    builder.add_literal(behind, ")", end);
  }
  builder.add_literal(start, "x", end);
  return std::move(builder).build().value();
}

TEST(Pushdown, CountsNestedBrackets) {
  const auto grammar = ambiguous();
  EXPECT_TRUE(admits(*grammar, symbols_of("((x))")));
  EXPECT_FALSE(admits(*grammar, symbols_of("((x)")));
  EXPECT_FALSE(admits(*grammar, symbols_of("(x))")));
}

TEST(Pushdown, AmbiguityCostsNoMoreWithDepth) {
  const auto grammar = ambiguous();
  Pushdown pushdown(*grammar);
  Pushdown::Set set = pushdown.start();
  for (int depth = 0; depth < 500; ++depth) {
    set = pushdown.step(set, '(');
    ASSERT_LE(set.configs.size(), 4U);
  }
  EXPECT_LE(pushdown.num_callers(), 2000U);
  for (const char c : "x" + std::string(500, ')')) {
    set = pushdown.step(set, static_cast<Symbol>(c));
    ASSERT_FALSE(set.is_dead());
  }
  EXPECT_TRUE(set.is_complete);
}

TEST(Pushdown, CompactingForgetsOnlyWhatIsOver) {
  const auto grammar = ambiguous();
  Pushdown pushdown(*grammar);
  Pushdown::Set set = pushdown.start();
  for (const Symbol symbol : symbols_of("((((((((((x)))))))")) {
    set = pushdown.step(set, symbol);
  }
  const std::size_t before = pushdown.num_callers();
  pushdown.compact(set);
  EXPECT_LT(pushdown.num_callers(), before);
  for (const Symbol symbol : symbols_of(")))")) {
    EXPECT_FALSE(set.is_complete);
    set = pushdown.step(set, symbol);
  }
  EXPECT_TRUE(set.is_complete);
}

// The second call comes when the rule has already ended, reading nothing.
TEST(Pushdown, ARuleThatMayBeEmptyIsCalledTwiceAtOnePlace) {
  GrammarBuilder builder;
  const RuleId optional = builder.add_rule();
  builder.accept(builder.start_of(optional));
  builder.accept(builder.add_literal(builder.start_of(optional), "x"));
  const StateId between = builder.add_state(0);
  const StateId end = builder.add_state(0);
  builder.accept(end);
  builder.add_call(builder.start_of(0), {.rule = optional, .target = between});
  builder.add_call(between, {.rule = optional, .target = end});
  const auto grammar = std::move(builder).build().value();
  for (std::size_t length = 0; length < 5; ++length) {
    EXPECT_EQ(admits(*grammar, symbols_of(std::string(length, 'x'))), length <= 2) << length;
  }
}

TEST(Pushdown, HoldsCountersToTheirGuards) {
  GrammarBuilder builder;
  const StateId state = builder.start_of(0);
  builder.add_edge(state,
                   {.low = 'a', .high = 'a', .target = state, .counts = true, .guard = {0, 4}});
  builder.accept(state, {.least = 2, .most = kNoLimit});
  const auto grammar = std::move(builder).build().value();
  for (std::size_t length = 0; length < 8; ++length) {
    EXPECT_EQ(admits(*grammar, symbols_of(std::string(length, 'a'))), length >= 2 && length <= 5)
        << length;
  }
}

TEST(GrammarBuilder, RefusesRulesThatNeverRead) {
  GrammarBuilder builder;
  const RuleId other = builder.add_rule();
  const StateId end = builder.add_state(0);
  builder.accept(end);
  builder.add_call(builder.start_of(0), {.rule = other, .target = end});
  builder.add_call(builder.start_of(other), {.rule = 0, .target = builder.start_of(other)});
  builder.accept(builder.start_of(other));
  EXPECT_EQ(std::move(builder).build().error().code(), Code::kInvalidArgument);
}

TEST(GrammarBuilder, RefusesGrammarsWithoutAnyText) {
  GrammarBuilder builder;
  const StateId behind = builder.add_state(0);
  builder.add_call(builder.add_literal(builder.start_of(0), "("), {.rule = 0, .target = behind});
  builder.accept(builder.add_literal(behind, ")"));
  const auto built = std::move(builder).build();
  ASSERT_FALSE(built.has_value());
  EXPECT_NE(built.error().message().find("no finite text"), std::string::npos);
}

}  // namespace
}  // namespace nibble::grammar
