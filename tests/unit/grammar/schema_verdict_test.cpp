// Whole texts against the verdicts of the Python package jsonschema.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "grammar/harmony_grammar.h"
#include "support/grammar_script.h"

namespace nibble::grammar {
namespace {

TEST(SchemaVerdict, NothingInvalidIsAdmittedAndNothingValidIsLostUnlessSaidSo) {
  std::ifstream file(NIBBLE_SOURCE_DIR "/tests/golden/json_schema.json");
  const auto cases = nlohmann::ordered_json::parse(file);
  ASSERT_GT(cases.size(), 20U);
  for (const auto& one : cases) {
    const std::string schema = one.at("schema").dump();
    const auto grammar = text_grammar({TextFormat::Kind::kJsonSchema, schema});
    ASSERT_TRUE(grammar.has_value()) << schema << ": " << grammar.error().message();
    for (const auto& verdict : one.at("texts")) {
      const auto text = verdict.at("text").get<std::string>();
      std::vector<Symbol> symbols = symbols_of(text);
      symbols.push_back(kStopSymbol);
      EXPECT_EQ(admits(**grammar, symbols), verdict.at("generated").get<bool>())
          << text << " under " << schema;
    }
  }
}

}  // namespace
}  // namespace nibble::grammar
