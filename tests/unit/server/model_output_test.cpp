// What models are reported to write, as clients of the chat get it: whole, and streamed with the
// tokens arriving one by one, in twos, in tens and all at once.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/server/token_streams.h"

namespace nibble::server {
namespace {

using testing::HasSubstr;

const std::string kStart = "<|start|>assistant";
const std::string kThink = "<|channel|>analysis<|message|>Think.<|end|>" + kStart;
const std::string kFinal = "<|channel|>final<|message|>";
const std::string kCall = "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>";
const std::string kReplacement = "\xEF\xBF\xBD";

TestJson chat(const TestJson& fields) {
  TestJson body = {{"messages", {{{"role", "user"}, {"content", "hello"}}}},
                   {"tools",
                    {{{"type", "function"},
                      {"function", {{"name", "weather"}, {"parameters", {{"type", "object"}}}}}}}}};
  body.update(fields);
  return body;
}

// The message, which is the same in every way of asking.
TestJson message_of(const Ids& ids, const TestJson& fields = TestJson::object()) {
  Api api;
  TestJson body = chat(fields);
  const Reply whole = reply_in_steps(api, "/v1/chat/completions", body, ids, kAllAtOnce);
  EXPECT_EQ(whole.status, 200) << whole.body;
  TestJson message = plain(whole.json());
  body["stream"] = true;
  for (const std::size_t per_step : kTokensPerStep) {
    const Reply stream = reply_in_steps(api, "/v1/chat/completions", body, ids, per_step);
    EXPECT_EQ(stream.status, 200);
    EXPECT_EQ(joined(stream.events()), message) << per_step << " tokens a step";
  }
  message["tokens"] = whole.json()["usage"]["completion_tokens"];
  return message;
}

TestJson message_of(const std::string& script, const TestJson& fields = TestJson::object()) {
  return message_of(ids_of(script), fields);
}

TEST(ModelOutput, TextWithoutMarkersIsKeptAndTheAnswerBehindItRead) {
  const TestJson message =
      message_of("I'm sorry, I can't.<|end|>" + kStart + kThink + kFinal + "Done.<|return|>");
  EXPECT_THAT(message["content"].get<std::string>(), HasSubstr("I'm sorry, I can't."));
  EXPECT_THAT(message["content"].get<std::string>(), testing::EndsWith("Done."));
  EXPECT_EQ(message["reasoning"], "Think.");
  EXPECT_EQ(message["finish"], "stop");
}

TEST(ModelOutput, JunkInAHeaderCostsNoTurn) {
  for (const char* header :
       {"<|channel|>?!", "<|channel|>analysis 7", "<|channel|>..final", "<|channel|>finalfinal",
        "<|channel|>final final", "<|channel|><|channel|>final", "<|channel|>-final",
        "<|channel|>commentary to=functions.get-it_v2.x",
        " to=functions.get-it_v2.x<|channel|>commentary",
        "<|channel|>to=functions.weather commentary", "<|channel|>Let me see what I can do here",
        "<|channel|>", "<|channel|>final<|constrain|>text", "<|start|><|channel|>final"}) {
    SCOPED_TRACE(header);
    const TestJson message = message_of(
        fmt::format("{}<|message|>first<|end|>{}{}second<|return|>", header, kStart, kFinal));
    const std::string shown = message["content"].get<std::string>() +
                              message["reasoning"].get<std::string>() + message["calls"].dump();
    EXPECT_THAT(shown, HasSubstr("first"));
    EXPECT_THAT(message["content"].get<std::string>(), testing::EndsWith("second"));
  }
}

TEST(ModelOutput, OfferedToolsThatAreNotCalledLeaveTheAnswer) {
  for (const char* end : {"<|return|>", "<|end|>", ""}) {
    const TestJson message = message_of(kThink + kFinal + "42." + end);
    EXPECT_EQ(message["content"], "42.") << end;
    EXPECT_EQ(message["reasoning"], "Think.");
    EXPECT_TRUE(message["calls"].empty());
    EXPECT_EQ(message["finish"], "stop");
  }
}

TEST(ModelOutput, ACallIsOneEntryHoweverItsTokensArrive) {
  const TestJson message = message_of(kCall + "{\"a\":\"b\"}<|call|>");
  ASSERT_EQ(message["calls"].size(), 1U);
  EXPECT_EQ(message["calls"][0]["name"], "weather");
  EXPECT_EQ(TestJson::parse(message["calls"][0]["arguments"].get<std::string>()),
            TestJson({{"a", "b"}}));
  EXPECT_EQ(message["content"], "");
  EXPECT_EQ(message["finish"], "tool_calls");
}

TEST(ModelOutput, ArgumentsThatAreNoObjectArePassedOnAsTheyAre) {
  for (const std::string arguments :
       {"[{\"a\":1}]", "{\"a\":1}]", "{\"a\":\"line1\nline2\"}", "", "nothing"}) {
    const TestJson message = message_of(kCall + arguments + "<|call|>");
    ASSERT_EQ(message["calls"].size(), 1U) << arguments;
    EXPECT_EQ(message["calls"][0]["arguments"], arguments);
    EXPECT_EQ(message["finish"], "tool_calls");
  }
}

TEST(ModelOutput, ACallThatTheBudgetCutsEndsWithLength) {
  const Ids ids = ids_of(kCall + "{\"city\": \"Bern\", \"days\": [1, 2, 3]}<|call|>");
  ASSERT_GE(ids.size(), 20U);
  for (std::size_t budget = 1; budget <= ids.size(); ++budget) {
    const TestJson message = message_of(ids, {{"tool_choice", "required"}, {"max_tokens", budget}});
    EXPECT_EQ(message["finish"], budget < ids.size() ? "length" : "tool_calls") << budget;
    EXPECT_EQ(message["tokens"], budget);
  }
}

// One byte a token: characters come whole, and none is replaced.
TEST(ModelOutput, CharactersOverSeveralTokensComeWhole) {
  const std::string text =
      "\xF0\x9F\x98\xBA \xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7 \xED\x95\x9C caf\xC3\xA9";
  const TestJson message = message_of(ids_of(kFinal) + ids_of_bytes(text) + ids_of("<|return|>"));
  EXPECT_EQ(message["content"], text);
  Api api;
  TestJson bytes = TestJson::array();
  const Reply reply = reply_in_steps(api, "/v1/chat/completions", chat({{"logprobs", true}}),
                                     ids_of(kFinal) + ids_of_bytes(text), kAllAtOnce);
  std::string raw;
  const TestJson json = reply.json();
  for (const TestJson& token : json["choices"][0]["logprobs"]["content"]) {
    for (const TestJson& byte : token["bytes"]) {
      raw += static_cast<char>(byte.get<int>());
    }
  }
  EXPECT_EQ(raw, text) << "the bytes of each token, not their replacement";
}

// Each event is read by a strict parser.
TEST(ModelOutput, BytesThatAreNoTextAreReplacedOnceAtTheirEnd) {
  for (const std::string bytes :
       {"\xF0\x9F\x98", "\xC0\x80", "\xED\xA0\x80", "\xF5\x80\x80\x80", "\xFF", "\xE2\x82"}) {
    const TestJson message =
        message_of(ids_of(kFinal) + ids_of_bytes("a" + bytes), {{"max_tokens", 250}});
    const std::string content = message["content"];
    EXPECT_THAT(content, testing::StartsWith("a" + kReplacement));
    EXPECT_EQ(content.size() % kReplacement.size(), 1U) << "nothing but replacements";
  }
  EXPECT_EQ(message_of(ids_of(kFinal) + ids_of_bytes("\xF0\x9F\x98"))["content"], kReplacement);
}

TEST(ModelOutput, AStopStringOverTokenBordersNeverShows) {
  const std::string text = "alpha bravo charlie delta";
  const Ids ids = ids_of(kFinal) + ids_of_bytes(text) + ids_of(" and more<|return|>");
  for (const TestJson& stop : {TestJson("vo cha"), TestJson({"zulu", "vo cha", "charlie"})}) {
    const TestJson message = message_of(ids, {{"stop", stop}});
    EXPECT_EQ(message["content"], "alpha bra");
    EXPECT_EQ(message["finish"], "stop");
    EXPECT_EQ(message["tokens"], ids_of(kFinal).size() + std::string("alpha bravo cha").size())
        << "the tokens of the match count";
  }
}

TEST(ModelOutput, AStopStringInTheReasoningIsNotSeen) {
  const TestJson message =
      message_of("<|channel|>analysis<|message|>Step 1. Step 2. Step 3.<|end|>" + kStart + kFinal +
                     "42<|return|>",
                 {{"stop", {"Step 2"}}});
  EXPECT_EQ(message["content"], "42");
  EXPECT_EQ(message["reasoning"], "Step 1. Step 2. Step 3.");
  EXPECT_EQ(message["finish"], "stop");
}

}  // namespace
}  // namespace nibble::server
