// Response formats and tool choices, down to answers of the demo model.
#include "api/constraints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "nibble/engine.h"

namespace nibble {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

const std::string kDemo = NIBBLE_SOURCE_DIR "/models/demo";

const char* const kPet = R"({"type": "object", "properties": {
    "kind": {"enum": ["cat", "dog"]}, "age": {"type": "integer", "minimum": 0, "maximum": 30},
    "name": {"type": "string", "minLength": 1, "maxLength": 12},
    "toys": {"type": "array", "items": {"type": "string", "maxLength": 6}, "maxItems": 2}},
    "required": ["kind", "age", "name"], "additionalProperties": false})";

Request chat(ResponseFormat::Kind kind = ResponseFormat::Kind::kText) {
  ChatPrompt prompt{.messages = {{.role = ChatRole::kUser, .content = "Tell me about a cat."}}};
  Request out{.prompt = std::move(prompt), .max_tokens = 600};
  out.response_format.kind = kind;
  out.response_format.schema_json = kind == ResponseFormat::Kind::kJsonSchema ? kPet : "";
  return out;
}

Request with_tools(ToolChoice choice, bool is_strict = false) {
  Request out = chat();
  auto& prompt = std::get<ChatPrompt>(out.prompt);
  prompt.tools = {{.name = "adopt", .parameters_json = kPet, .is_strict = is_strict},
                  {.name = "feed"}};
  prompt.tool_choice = std::move(choice);
  return out;
}

void expect_pet(const Json& pet) {
  ASSERT_TRUE(pet.is_object());
  EXPECT_TRUE(pet.at("kind") == "cat" || pet.at("kind") == "dog");
  EXPECT_TRUE(pet.at("age").is_number_integer() && pet.at("age") >= 0 && pet.at("age") <= 30);
  EXPECT_TRUE(pet.at("name").is_string() && !pet.at("name").get<std::string>().empty());
  EXPECT_LE(pet.value("toys", Json::array()).size(), 2U);
  for (const auto& [key, value] : pet.items()) {
    EXPECT_TRUE(key == "kind" || key == "age" || key == "name" || key == "toys") << key;
  }
}

TEST(ConstraintRules, LeaveFreeWhatAsksForNothing) {
  EXPECT_EQ(constraint_rules(chat())->has_value(), false);
  EXPECT_EQ(constraint_rules(with_tools({}))->has_value(), false);
  EXPECT_EQ(constraint_rules({.prompt = TextPrompt{"x"}})->has_value(), false);
  Request choice_without_tools = chat();
  std::get<ChatPrompt>(choice_without_tools.prompt).tool_choice.kind = ToolChoice::Kind::kNone;
  std::get<ChatPrompt>(choice_without_tools.prompt).parallel_tool_calls = false;
  EXPECT_EQ(constraint_rules(choice_without_tools)->has_value(), false);
}

TEST(ConstraintRules, FollowTheChoiceOfTools) {
  const auto none = **constraint_rules(with_tools({ToolChoice::Kind::kNone}));
  EXPECT_TRUE(none.answer.tools.empty());
  const auto required = **constraint_rules(with_tools({ToolChoice::Kind::kRequired}));
  EXPECT_TRUE(required.answer.must_call && required.answer.may_call_again);
  EXPECT_EQ(required.answer.tools.size(), 2U);
  const auto named = **constraint_rules(with_tools({ToolChoice::Kind::kNamed, "feed"}));
  EXPECT_TRUE(named.answer.must_call && !named.answer.may_call_again);
  ASSERT_EQ(named.answer.tools.size(), 1U);
  EXPECT_EQ(named.answer.tools[0].name, "feed");
  const auto strict = **constraint_rules(with_tools({}, true));
  EXPECT_FALSE(strict.answer.must_call);
  EXPECT_EQ(strict.answer.tools[0].arguments.schema, kPet);
  Request single = with_tools({});
  std::get<ChatPrompt>(single.prompt).parallel_tool_calls = false;
  EXPECT_FALSE((*constraint_rules(single))->answer.may_call_again);
}

TEST(ConstraintRules, RefuseChoicesThatCannotBeMade) {
  const auto refusal = [](const Request& request) {
    const auto rules = constraint_rules(request);
    EXPECT_FALSE(rules.has_value());
    EXPECT_EQ(rules.error().code(), Code::kInvalidArgument);
    return rules.error().message();
  };
  EXPECT_THAT(refusal(with_tools({ToolChoice::Kind::kNamed, "walk"})),
              HasSubstr("tool_choice: want one of the 2 tools, found 'walk'"));
  Request no_tools = chat();
  std::get<ChatPrompt>(no_tools.prompt).tool_choice.kind = ToolChoice::Kind::kRequired;
  EXPECT_THAT(refusal(no_tools), HasSubstr("tool_choice: a call is required"));
  Request odd_name = with_tools({ToolChoice::Kind::kRequired});
  std::get<ChatPrompt>(odd_name.prompt).tools[1].name = "a b";
  EXPECT_THAT(refusal(odd_name), HasSubstr("tools[1]: want a name"));
}

TEST(Constraints, KeepCompiledGrammars) {
  const auto tokenizer = text::Tokenizer::load(kDemo);
  ASSERT_TRUE(tokenizer.has_value());
  Constraints constraints;
  const auto rules = constraint_rules(chat(ResponseFormat::Kind::kJsonObject));
  const auto first = constraints.get(**rules, *tokenizer, {});
  const auto second = constraints.get(**rules, *tokenizer, {});
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_NE(first->mask, second->mask) << "each answer has its own place in the grammar";
  EXPECT_EQ(first->end_ids.size(), 2U);
  std::vector<std::uint32_t> bits(static_cast<std::size_t>(tokenizer->vocab_size() + 31) / 32);
  for (const auto& constraint : {first, second}) {
    EXPECT_TRUE(constraint->mask->mask(bits));
    EXPECT_TRUE(constraint->mask->accept(text::HarmonyTokens::find(*tokenizer)->channel).ok());
    EXPECT_EQ(constraint->mask->accept(0).code(), Code::kInternal);
  }
}

class ConstrainedEngine : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared_engine = std::make_unique<Engine>(
        *Engine::load({.model = kDemo, .num_threads = 2, .max_model_len = 2048}));
  }
  static void TearDownTestSuite() { shared_engine.reset(); }

  static Response answer(Request request, std::uint64_t seed) {
    request.sampling.seed = seed;
    request.sampling.temperature = 1.0F;
    const auto response = shared_engine->generate(request);
    EXPECT_TRUE(response.has_value()) << (response ? "" : response.error().message());
    return response ? *response : Response{};
  }

  static inline std::unique_ptr<Engine> shared_engine;
};

TEST_F(ConstrainedEngine, AnswersAreValidUnderTheSchema) {
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    const Response response = answer(chat(ResponseFormat::Kind::kJsonSchema), seed);
    ASSERT_EQ(response.finish_reason, FinishReason::kStop) << response.content;
    const Json pet = Json::parse(response.content, nullptr, false);
    ASSERT_FALSE(pet.is_discarded()) << response.content;
    expect_pet(pet);
  }
}

TEST_F(ConstrainedEngine, HotNoiseIsStillValid) {
  Request request = chat(ResponseFormat::Kind::kJsonSchema);
  request.prompt = TextPrompt{"x"};  // no reasoning that could go on for ever
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    request.sampling.seed = seed;
    request.sampling.temperature = 50.0F;
    const auto response = shared_engine->generate(request);
    ASSERT_TRUE(response.has_value()) << response.error().message();
    ASSERT_EQ(response->finish_reason, FinishReason::kStop) << response->content;
    const Json pet = Json::parse(response->content, nullptr, false);
    ASSERT_FALSE(pet.is_discarded()) << response->content;
    expect_pet(pet);
  }
}

TEST_F(ConstrainedEngine, RequiredCallsAreMadeAsDeclared) {
  for (std::uint64_t seed = 0; seed < 2; ++seed) {
    Request request = with_tools({ToolChoice::Kind::kNamed, "adopt"}, true);
    const Response response = answer(request, seed);
    ASSERT_EQ(response.finish_reason, FinishReason::kToolCalls) << response.content;
    ASSERT_EQ(response.tool_calls.size(), 1U);
    EXPECT_EQ(response.tool_calls[0].name, "adopt");
    expect_pet(Json::parse(response.tool_calls[0].arguments, nullptr, false));
  }
}

TEST_F(ConstrainedEngine, NoToolIsCalledWhenNoneMayBe) {
  for (std::uint64_t seed = 0; seed < 2; ++seed) {
    const Response response = answer(with_tools({ToolChoice::Kind::kNone}), seed);
    EXPECT_TRUE(response.tool_calls.empty());
  }
}

TEST_F(ConstrainedEngine, ACutAnswerSaysSo) {
  Request request = chat(ResponseFormat::Kind::kJsonSchema);
  request.prompt = TextPrompt{"x"};
  for (std::int32_t max_tokens = 1; max_tokens < 6; ++max_tokens) {
    request.max_tokens = max_tokens;
    EXPECT_EQ(answer(request, 1).finish_reason, FinishReason::kLength);
  }
}

TEST_F(ConstrainedEngine, RefusesWhatItCannotHold) {
  const auto refusal = [&](const Request& request) {
    const auto response = shared_engine->generate(request);
    EXPECT_FALSE(response.has_value());
    EXPECT_EQ(response.error().code(), Code::kInvalidArgument);
    return response.error().message();
  };
  Request request = chat(ResponseFormat::Kind::kJsonSchema);
  request.response_format.schema_json =
      R"({"properties": {"a": {"type": "string", "pattern": "("}}})";
  EXPECT_THAT(refusal(request), HasSubstr("response_format: #/properties/a/pattern: byte 1"));
  request.response_format.schema_json = R"({"not": {}})";
  EXPECT_THAT(refusal(request), HasSubstr("response_format: #: keyword 'not' is not supported"));
  Request endless = chat(ResponseFormat::Kind::kJsonSchema);
  endless.ignore_eos = true;
  EXPECT_THAT(refusal(endless), HasSubstr("ignore_eos"));
  Request tool = with_tools({}, true);
  std::get<ChatPrompt>(tool.prompt).tools[0].parameters_json = R"({"type": "object", "if": {}})";
  EXPECT_THAT(refusal(tool), HasSubstr("tools[0] (adopt): #: keyword 'if' is not supported"));
}

TEST_F(ConstrainedEngine, TheSchemaIsToldToTheModel) {
  Request request = chat(ResponseFormat::Kind::kJsonSchema);
  request.response_format.name = "pet";
  const std::string prompt = *shared_engine->decode(*shared_engine->prompt_ids(request));
  EXPECT_THAT(prompt, HasSubstr("# Response Formats\n\n## pet\n\n" + std::string(kPet)));
}

}  // namespace
}  // namespace nibble
