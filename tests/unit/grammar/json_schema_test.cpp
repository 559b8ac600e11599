#include "grammar/json_schema.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "grammar/harmony_grammar.h"
#include "support/grammar_script.h"

namespace nibble::grammar {
namespace {

Result<std::shared_ptr<const Grammar>> grammar_of(const std::string& schema) {
  return text_grammar({TextFormat::Kind::kJsonSchema, schema});
}

bool is_admitted(const Grammar& grammar, const std::string& text) {
  std::vector<Symbol> symbols = symbols_of(text);
  symbols.push_back(kStopSymbol);
  return admits(grammar, symbols);
}

struct Case {
  const char* schema;
  std::vector<const char*> admitted, refused;
};

TEST(JsonSchema, AdmitsWhatIsDocumented) {
  const std::vector<Case> cases = {
      {"{}", {"1", "\"x\"", "{\"a\": [1, null]}", "[]"}, {"", "x", "{a:1}", " 1", "1 "}},
      {R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"},
          "c": {"type": "null"}}, "required": ["b"], "additionalProperties": false})",
       {R"({"a": 1, "b": true, "c": null})", R"({"b":false})", "{\n  \"b\": true\n}"},
       {"{}", R"({"b": true, "a": 1})", R"({"a": 1})", R"({"b": 1})", R"({"b": true, "d": 1})",
        R"({"b": true,})", R"({"b" : true})"}},
      {R"({"type": "object", "properties": {"a": {"type": "integer"}},
          "additionalProperties": {"type": "string"}})",
       {"{}", R"({"a": 1, "b": "x", "aa": ""})", R"({"b": "x"})"},
       {R"({"a": "x"})", R"({"b": 1})", R"({"b": "x", "a": "y"})", R"({"\u0061": "x"})"}},
      {R"({"type": "object", "required": ["k"], "minProperties": 2, "maxProperties": 3})",
       {R"({"k": 1, "x": 2})", R"({"k": 1, "x": 2, "y": 3})"},
       {R"({"k": 1})", R"({"k": 1, "x": 2, "y": 3, "z": 4})", R"({"x": 2, "y": 3})"}},
      {R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}],
          "items": {"type": "null"}, "minItems": 1, "maxItems": 4})",
       {"[1]", "[1, \"a\"]", "[1, \"a\", null, null]", "[\n  1\n]"},
       {"[]", "[\"a\"]", "[1, null]", "[1, \"a\", null, null, null]", "[1,]"}},
      {R"({"type": "array", "items": false, "prefixItems": [{"const": 1}]})",
       {"[]", "[1]"},
       {"[1, 1]", "[2]"}},
      {R"({"type": "array", "maxItems": 0})", {"[]"}, {"[1]"}},
      {R"({"type": "string", "minLength": 2, "maxLength": 3})",
       {R"("ab")", R"("\u00e9\n")", R"("abc")", R"("\ud83d\ude00z")"},
       {R"("a")", R"("abcd")", R"("\ud83d")", R"("\ude00z")", R"("\ud83dab")"}},
      {R"({"type": "string", "pattern": "^a+$", "maxLength": 2})",
       {R"("a")", R"("aa")"},
       {R"("aaa")"}},
      {R"({"type": "string", "pattern": "b"})", {R"("abc")", R"("\nb")"}, {R"("ac")", R"("")"}},
      {R"({"enum": ["a\"b", 1, 1.5, null, {"k": [1]}]})",
       {R"("a\"b")", "1", "1.5", "null", R"({"k":[1]})"},
       {"2", R"("a")", R"({"k": [1]})"}},
      {R"({"type": "string", "enum": ["x", 1]})", {R"("x")"}, {"1"}},
      {R"({"const": "\u00e9"})", {"\"\xC3\xA9\""}, {R"("\u00e9")"}},
      {R"({"type": ["integer", "null"], "minimum": 0})", {"0", "null", "7"}, {"-1", "1.0"}},
      {R"({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]})",
       {"1", "[1]"},
       {"[[1]]", "\"1\""}},
      {R"({"oneOf": [
          {"type": "object", "properties": {"t": {"const": "a"}, "x": {"type": "integer"}}, "required": ["t"]},
          {"type": "object", "properties": {"t": {"const": "b"}}, "required": ["t"]}]})",
       {R"({"t": "a", "x": 1})", R"({"t": "b", "x": "y"})"},
       {R"({"t": "a", "x": "y"})", R"({"t": "c"})"}},
      {R"({"allOf": [{"$ref": "#/$defs/a~1b"}], "$defs": {"a/b": {"type": "null"}}})",
       {"null"},
       {"1"}},
      {R"({"type": "object", "properties": {"v": {"type": "integer"}, "next": {"anyOf":
          [{"$ref": "#"}, {"type": "null"}]}}, "required": ["v", "next"], "additionalProperties": false})",
       {R"({"v": 1, "next": {"v": 2, "next": null}})"},
       {R"({"v": 1, "next": {"v": 2}})", R"({"v": 1})"}},
      {R"({"type": "array", "items": {"$ref": "#"}})", {"[]", "[[], [[]]]"}, {"[1]"}},
      {R"({"type": "string", "format": "date"})",
       {R"("2024-02-28")"},
       {R"("2024-13-01")", R"("x")"}},
      {R"({"type": "number", "exclusiveMinimum": 0, "maximum": 1})",
       {"0.5", "1", "1.0"},
       {"0", "1.1"}},
      {R"({"type": "boolean", "title": "t", "x-order": 1})", {"true"}, {"null"}},
  };
  for (const Case& one : cases) {
    const auto grammar = grammar_of(one.schema);
    ASSERT_TRUE(grammar.has_value()) << one.schema << ": " << grammar.error().message();
    for (const char* text : one.admitted) {
      EXPECT_TRUE(is_admitted(**grammar, text)) << one.schema << " should admit " << text;
    }
    for (const char* text : one.refused) {
      EXPECT_FALSE(is_admitted(**grammar, text)) << one.schema << " should refuse " << text;
    }
  }
}

TEST(JsonSchema, RefusesWhatItCannotHoldAndNamesThePlace) {
  for (const auto& [schema, message] : std::vector<std::pair<std::string, std::string>>{
           {"", "#: want a JSON schema"},
           {"{\"a\"", "#: want a JSON schema"},
           {"[]", "#: want a schema, found array"},
           {"false", "#: the schema false"},
           {R"({"type": "text"})", "#/type: want a JSON type, found \"text\""},
           {R"({"type": []})", "#/type: want at least 1 type"},
           {R"({"properties": {"a/b": {"not": {}}}})", "#/properties/a~1b: keyword 'not'"},
           {R"({"items": {"if": {}}})", "#/items: keyword 'if'"},
           {R"({"type": "object", "patternProperties": {}})", "keyword 'patternProperties'"},
           {R"({"type": "integer", "multipleOf": 3})", "keyword 'multipleOf'"},
           {R"({"type": "array", "uniqueItems": true})", "keyword 'uniqueItems'"},
           {R"({"type": "array", "items": [{}]})", "#/items: want a schema, found array"},
           {R"({"minLength": 1, "minimum": 1})", "want a \"type\""},
           {R"({"anyOf": []})", "#/anyOf: want a list of 1 to 256"},
           {R"({"anyOf": [{}], "minLength": 1})", "'minLength' beside 'anyOf'"},
           {R"({"anyOf": [{}], "oneOf": [{}]})", "'oneOf' beside 'anyOf'"},
           {R"({"allOf": [{}, {}]})", "#/allOf: want a list of 1 to 1"},
           {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", "#/oneOf/1: cannot tell"},
           {R"({"oneOf": [{"properties": {}}, {"type": "string"}]})", "#/oneOf/1: cannot tell"},
           {R"({"enum": []})", "want at least 1 constant"},
           {R"({"$ref": "http://x/y"})", "#/$ref: want \"#\""},
           {R"({"$ref": "#/$defs/x"})", "is not in the schema"},
           {R"({"$ref": "#"})", "no finite text"},
           {R"({"anyOf": [{"$ref": "#"}, {"type": "null"}]})", "leads to itself"},
           {R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})",
            "response_format: no finite text"},
           {R"({"type": "array", "items": {"$ref": "#"}, "minItems": 1})", "no finite text"},
           {R"({"type": "array", "items": false, "minItems": 1})", "only 0 are admitted"},
           {R"({"type": "array", "minItems": 2, "maxItems": 1})",
            "minItems of at most maxItems, 1, found 2"},
           {R"({"type": "string", "minLength": -1})", "#/minLength: want a whole number"},
           {R"({"type": "string", "maxLength": 1.5})", "#/maxLength: want a whole number"},
           {R"({"type": "string", "format": "iri"})", "#/format: want one of date,"},
           {R"({"type": "string", "pattern": 1})", "#/pattern: want a string"},
           {R"({"type": "string", "pattern": "^a$", "minLength": 2})", "#: no value can satisfy"},
           {R"({"type": "integer", "minimum": 2, "maximum": 1})", "#: no value can satisfy"},
           {R"({"type": "integer", "minimum": "0"})", "#/minimum: want a number"},
           {R"({"type": "integer", "exclusiveMinimum": true})",
            "#/exclusiveMinimum: want a number"},
           {R"({"type": "object", "required": ["x"], "additionalProperties": false})",
            "#/required: \"x\" is required but not admitted"},
           {R"({"type": "object", "properties": {"a": {}}, "maxProperties": 1})",
            "beside optional properties"},
           {R"({"properties": {"a": {"pattern": "(?<!q)z", "type": "string"}}})",
            "response_format: #/properties/a/pattern: byte 2: look-around"},
           {"{\"title\": \"" + std::string(kMaxSchemaBytes, 'x') + "\"}",
            "want at most 262144 bytes"},
       }) {
    const auto grammar = grammar_of(schema);
    ASSERT_FALSE(grammar.has_value()) << schema;
    EXPECT_EQ(grammar.error().code(), Code::kInvalidArgument);
    EXPECT_NE(grammar.error().message().find(message), std::string::npos)
        << schema << ": " << grammar.error().message();
    EXPECT_EQ(grammar.error().message().find('\n'), std::string::npos);
  }
  std::string deep = "{}";
  for (int i = 0; i < 100; ++i) {
    deep = fmt::format(R"({{"items": {}}})", deep);
  }
  EXPECT_NE(grammar_of(deep).error().message().find("nested at most 64"), std::string::npos);
}

TEST(JsonSchema, BadPatternsAreRefusedEach) {
  for (const char* pattern : {"*ab", "{3}k", "(?<!q)z", "[9-0]", "(", "\\\\"}) {
    const auto grammar =
        grammar_of(std::string(R"({"type": "string", "pattern": ")") + pattern + "\"}");
    ASSERT_FALSE(grammar.has_value()) << pattern;
    EXPECT_NE(grammar.error().message().find("#/pattern: byte "), std::string::npos);
  }
}

TEST(JsonSchema, LengthsAreTheSameOnBothSidesOfRoundNumbers) {
  for (std::size_t length = 120; length <= 140; ++length) {
    const std::string bound = std::to_string(length);
    const auto most = grammar_of(R"({"type": "string", "maxLength": )" + bound + "}");
    const auto least = grammar_of(R"({"type": "string", "minLength": )" + bound + "}");
    const auto quote = [](std::size_t n) { return '"' + std::string(n, 'k') + '"'; };
    EXPECT_TRUE(is_admitted(**most, quote(length)));
    EXPECT_FALSE(is_admitted(**most, quote(length + 1)));
    EXPECT_TRUE(is_admitted(**least, quote(length)));
    EXPECT_FALSE(is_admitted(**least, quote(length - 1)));
  }
  EXPECT_TRUE(grammar_of(R"({"type": "string", "maxLength": 100000})").has_value());
}

TEST(JsonSchema, ChainsOfReferencesEnd) {
  std::string defs;
  for (int i = 0; i < 3000; ++i) {
    defs += fmt::format(R"("d{}": {{"$ref": "#/$defs/d{}"}}, )", i, i + 1);
  }
  const auto grammar =
      grammar_of(R"({"$ref": "#/$defs/d0", "$defs": {)" + defs + R"("d3000": {"type": "null"}}})");
  ASSERT_TRUE(grammar.has_value()) << grammar.error().message();
  EXPECT_TRUE(is_admitted(**grammar, "null"));
}

}  // namespace
}  // namespace nibble::grammar
