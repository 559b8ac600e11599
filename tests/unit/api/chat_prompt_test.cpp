#include "api/chat_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nibble {
namespace {

using testing::HasSubstr;
using text::Role;

TEST(ChatPrompt, SystemMessageHoldsDateAndEffort) {
  const auto conversation = harmony_conversation({.messages = {{.content = "Hi"}},
                                                  .effort = ReasoningEffort::kHigh,
                                                  .current_date = "2026-11-30"});
  ASSERT_TRUE(conversation.has_value());
  ASSERT_EQ(conversation->size(), 2U);
  const text::Message& system = (*conversation)[0];
  EXPECT_EQ(system.role, Role::kSystem);
  EXPECT_EQ(system.system->current_date, "2026-11-30");
  EXPECT_EQ(system.system->effort, text::Effort::kHigh);
  EXPECT_EQ((*conversation)[1].role, Role::kUser);
  EXPECT_EQ((*conversation)[1].text, "Hi");
}

TEST(ChatPrompt, SystemAndDeveloperTextsBecomeOneDeveloperMessage) {
  const auto conversation =
      harmony_conversation({.messages = {{.role = ChatRole::kSystem, .content = "Be brief."},
                                         {.content = "Hi"},
                                         {.role = ChatRole::kDeveloper, .content = "In verse."},
                                         {.role = ChatRole::kSystem, .content = ""}},
                            .tools = {{.name = "f", .description = "d", .parameters_json = "{}"}}});
  ASSERT_TRUE(conversation.has_value());
  ASSERT_EQ(conversation->size(), 3U);
  const text::Message& developer = (*conversation)[1];
  EXPECT_EQ(developer.role, Role::kDeveloper);
  EXPECT_EQ(developer.developer->instructions, "Be brief.\n\nIn verse.");
  ASSERT_EQ(developer.developer->functions.size(), 1U);
  EXPECT_EQ(developer.developer->functions[0].name, "f");
  EXPECT_EQ(developer.developer->functions[0].parameters_json, "{}");
}

TEST(ChatPrompt, AssistantTurnGivesAnalysisThenAnswer) {
  const auto conversation = harmony_conversation(
      {.messages = {{.content = "2 + 2?"},
                    {.role = ChatRole::kAssistant, .content = "4", .reasoning = "easy"}}});
  ASSERT_TRUE(conversation.has_value());
  ASSERT_EQ(conversation->size(), 4U);
  EXPECT_EQ((*conversation)[2].channel, "analysis");
  EXPECT_EQ((*conversation)[2].text, "easy");
  EXPECT_EQ((*conversation)[3].channel, "final");
  EXPECT_EQ((*conversation)[3].text, "4");
}

// Call by id, result by id; content next to calls is a preamble, and may be absent.
TEST(ChatPrompt, ToolLoopNamesTheFunctionOfEachResult) {
  const auto conversation = harmony_conversation(
      {.messages = {
           {.content = "Weather?"},
           {.role = ChatRole::kAssistant,
            .content = "Let me see.",
            .reasoning = "call it",
            .tool_calls = {{"a", "weather", R"({"city": "Bern"})"}, {"b", "clock", "{}"}}},
           {.role = ChatRole::kTool, .content = "09:00", .tool_call_id = "b"},
           {.role = ChatRole::kTool, .content = "sun", .tool_call_id = "a"},
           {.role = ChatRole::kTool, .content = "late", .name = "log"},
       }});
  ASSERT_TRUE(conversation.has_value()) << conversation.error().message();
  const auto& messages = *conversation;
  ASSERT_EQ(messages.size(), 9U);
  EXPECT_EQ(messages[3].channel, "commentary");
  EXPECT_EQ(messages[3].recipient, "");
  EXPECT_EQ(messages[4].recipient, "functions.weather");
  EXPECT_EQ(messages[4].channel, "commentary");
  EXPECT_EQ(messages[4].content_type, "<|constrain|>json");
  EXPECT_EQ(messages[4].text, R"({"city": "Bern"})");
  EXPECT_EQ(messages[5].recipient, "functions.clock");
  for (std::size_t i = 6; i < 9; ++i) {
    EXPECT_EQ(messages[i].role, Role::kTool);
    EXPECT_EQ(messages[i].recipient, "assistant");
    EXPECT_EQ(messages[i].channel, "commentary");
  }
  EXPECT_EQ(messages[6].name, "functions.clock");
  EXPECT_EQ(messages[7].name, "functions.weather");
  EXPECT_EQ(messages[8].name, "functions.log");
}

TEST(ChatPrompt, ErrorsNameTheMessage) {
  const auto message_of = [](const ChatPrompt& prompt) {
    const auto refused = harmony_conversation(prompt);
    EXPECT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
    return refused.error().message();
  };
  EXPECT_THAT(message_of({}), HasSubstr("messages"));
  EXPECT_THAT(message_of({.messages = {{.content = "a"}}, .tools = {{.name = "f"}, {}}}),
              HasSubstr("tools[1]"));
  EXPECT_THAT(
      message_of({.messages = {{.content = "a"}, {.role = ChatRole::kTool, .tool_call_id = "x1"}}}),
      testing::AllOf(HasSubstr("messages[1]"), HasSubstr("x1")));
  EXPECT_THAT(
      message_of({.messages = {{.content = "a"},
                               {.role = ChatRole::kAssistant, .tool_calls = {{"x", "", ""}}}}}),
      HasSubstr("messages[1]"));
  // A result before its call answers nothing.
  EXPECT_THAT(
      message_of({.messages = {{.role = ChatRole::kTool, .tool_call_id = "x"},
                               {.role = ChatRole::kAssistant, .tool_calls = {{"x", "f", "{}"}}}}}),
      HasSubstr("messages[0]"));
}

}  // namespace
}  // namespace nibble
