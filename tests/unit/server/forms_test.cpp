// /v1/messages and /v1/responses over scripted tokens: streams are walked as clients walk them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/server/client_view.h"
#include "unit/server/scripted_api.h"

namespace nibble::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kAnalysis = "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant";
const std::string kFinal = "<|channel|>final<|message|>It is \xF0\x9F\x98\xBA 42.<|return|>";
const std::string kCall =
    "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\": "
    "\"Bern\"}<|call|>";
const std::string kScripts[] = {
    kAnalysis + kFinal,
    kAnalysis + kCall,
    kCall,
    kFinal,
    "<|channel|>commentary<|message|>Let me see.<|end|><|start|>assistant" + kCall,
    "<|channel|>commentary to=functions.weather<|message|>[1<|call|>",
    "plain<|end|><|start|>assistant" + kAnalysis + kFinal};

TestJson message_body(const TestJson& fields = TestJson::object()) {
  TestJson body = {{"max_tokens", 200},
                   {"messages", {{{"role", "user"}, {"content", "hello"}}}},
                   {"thinking", {{"type", "enabled"}, {"budget_tokens", 1024}}},
                   {"tools", {{{"name", "weather"}, {"input_schema", {{"type", "object"}}}}}}};
  body.update(fields);
  return body;
}

TEST(Messages, StreamEqualsWholeForEveryScriptAndBudget) {
  for (const std::string& script : kScripts) {
    for (const int budget : {1, 3, 8, 200}) {
      Api api;
      api.host->script = script;
      const Reply whole = api.post("/v1/messages", message_body({{"max_tokens", budget}}));
      ASSERT_EQ(whole.status, 200) << whole.body;
      const Reply stream =
          api.post("/v1/messages", message_body({{"max_tokens", budget}, {"stream", true}}));
      EXPECT_EQ(without_call_ids(assembled(stream.events())), without_call_ids(whole.json()))
          << script;
    }
  }
}

TEST(Messages, BlocksReasonsAndUsage) {
  Api api;
  api.host->script = kAnalysis + kCall;
  const TestJson call = api.post("/v1/messages", message_body()).json();
  ASSERT_EQ(call["content"].size(), 2U);
  EXPECT_EQ(call["content"][0]["thinking"], "Think.");
  EXPECT_EQ(call["content"][1]["type"], "tool_use");
  EXPECT_EQ(call["content"][1]["input"]["city"], "Bern");
  EXPECT_EQ(call["stop_reason"], "tool_use");
  EXPECT_EQ(call["usage"]["input_tokens"], 5);
  EXPECT_EQ(call["usage"]["cache_read_input_tokens"], 2);
  api.host->script = kAnalysis + kFinal;
  const TestJson silent = api.post("/v1/messages", without(message_body(), "thinking")).json();
  EXPECT_EQ(silent["content"].size(), 1U) << "thinking only when it is asked for";
  EXPECT_EQ(silent["stop_reason"], "end_turn");
  const TestJson stopped =
      api.post("/v1/messages", message_body({{"stop_sequences", {"42"}}})).json();
  EXPECT_EQ(stopped["stop_reason"], "stop_sequence");
  EXPECT_EQ(stopped["stop_sequence"], "42");
  EXPECT_EQ(api.post("/v1/messages", message_body({{"max_tokens", 1}})).json()["stop_reason"],
            "max_tokens");
}

TEST(Messages, HistoryAndWrongFields) {
  Api api;
  api.host->script = kFinal;
  const TestJson history = TestJson::parse(R"([
    {"role": "user", "content": "a"},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": ""},
      {"type": "tool_use", "id": "c1", "name": "weather", "input": {"x": 1}}]},
    {"role": "user", "content": [
      {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "42"}]},
      {"type": "text", "text": "and?"}]}])");
  ASSERT_EQ(api.post("/v1/messages", message_body({{"messages", history}, {"system", "s"}})).status,
            200);
  const auto& messages = std::get<ChatPrompt>(api.host->requests.back().prompt).messages;
  ASSERT_EQ(messages.size(), 5U);
  EXPECT_EQ(messages[0].role, ChatRole::kSystem);
  EXPECT_EQ(messages[2].reasoning, "t");
  EXPECT_EQ(messages[2].tool_calls.at(0).arguments, R"({"x":1})");
  EXPECT_EQ(messages[3].content, "42");
  EXPECT_EQ(messages[4].content, "and?");
  EXPECT_EQ(api.post("/v1/messages/count_tokens", without(message_body(), "max_tokens"))
                .json()["input_tokens"],
            3);
  for (const auto& [fields, word] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"({"max_tokens": null})", "max_tokens"},
           {R"({"messages": [{"role": "system", "content": "x"}]})", "role"},
           {R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})", "type"},
           {R"({"tool_choice": {"type": "some"}})", "tool_choice"}}) {
    const Reply reply = api.post("/v1/messages", message_body(TestJson::parse(fields)));
    EXPECT_EQ(reply.status, 400) << fields;
    EXPECT_EQ(reply.json()["type"], "error");
    EXPECT_EQ(reply.json()["error"]["type"], "invalid_request_error");
    EXPECT_THAT(reply.json()["error"]["message"].get<std::string>(), HasSubstr(word));
  }
}

TestJson response_body(const TestJson& fields = TestJson::object()) {
  TestJson body = {{"input", "hello"}, {"tools", {{{"type", "function"}, {"name", "weather"}}}}};
  body.update(fields);
  return body;
}

TEST(Responses, EventsTellTheWholeResponse) {
  for (const std::string& script : kScripts) {
    for (const int budget : {1, 3, 8, 200}) {
      Api api;
      api.host->script = script;
      TestJson body = response_body({{"max_output_tokens", budget}});
      const Reply whole = api.post("/v1/responses", body);
      ASSERT_EQ(whole.status, 200) << whole.body;
      body["stream"] = true;
      const std::vector<TestJson> events = api.post("/v1/responses", body).events();
      const TestJson& last = events.back();
      EXPECT_EQ(last["type"], budget == 200 ? "response.completed" : "response.incomplete");
      EXPECT_EQ(last["response"]["output"], items_of(events));
      EXPECT_EQ(plain_output(last["response"]), plain_output(whole.json())) << script;
    }
  }
}

TEST(Responses, ReplyHasWhatClientsKnow) {
  Api api;
  api.host->script = kAnalysis + kFinal;
  const TestJson json =
      api.post("/v1/responses",
               response_body({{"instructions", "be brief"}, {"metadata", {{"a", "b"}}}}))
          .json();
  EXPECT_EQ(json["object"], "response");
  EXPECT_EQ(json["status"], "completed");
  EXPECT_EQ(json["instructions"], "be brief");
  EXPECT_EQ(json["metadata"]["a"], "b");
  EXPECT_EQ(json["output"][0]["type"], "reasoning");
  EXPECT_EQ(json["output"][0]["content"][0]["text"], "Think.");
  EXPECT_EQ(json["output"][1]["content"][0]["type"], "output_text");
  EXPECT_EQ(json["output"][1]["content"][0]["text"], "It is \xF0\x9F\x98\xBA 42.");
  EXPECT_EQ(json["usage"]["input_tokens"], 7);
  EXPECT_EQ(json["usage"]["input_tokens_details"]["cached_tokens"], 2);
  EXPECT_GT(json["usage"]["output_tokens_details"]["reasoning_tokens"], 0);
  const auto& messages = std::get<ChatPrompt>(api.host->requests.back().prompt).messages;
  EXPECT_EQ(messages.at(0).role, ChatRole::kDeveloper);
}

TEST(Responses, ConversationsGoOnFromWhatIsKept) {
  Api api;
  api.host->script = kAnalysis + kCall;
  const TestJson first =
      api.post("/v1/responses", response_body({{"instructions", "only once"}})).json();
  const std::string id = first["id"];
  EXPECT_EQ(api.get("/v1/responses/" + id).json(), first);
  const std::string call_id = first["output"][1]["call_id"];
  api.host->script = kFinal;
  const Reply second = api.post(
      "/v1/responses",
      response_body(
          {{"previous_response_id", id},
           {"input",
            {{{"type", "function_call_output"}, {"call_id", call_id}, {"output", "42"}}}}}));
  ASSERT_EQ(second.status, 200) << second.body;
  EXPECT_EQ(second.json()["previous_response_id"], id);
  const auto& messages = std::get<ChatPrompt>(api.host->requests.back().prompt).messages;
  ASSERT_EQ(messages.size(), 3U) << "instructions are not carried over";
  EXPECT_EQ(messages[1].reasoning, "Think.");
  EXPECT_EQ(messages[1].tool_calls.at(0).id, call_id);
  EXPECT_EQ(messages[2].content, "42");
  EXPECT_EQ(api.call({.method = "DELETE", .path = "/v1/responses/" + id}).status, 200);
  EXPECT_EQ(api.get("/v1/responses/" + id).status, 404);
  EXPECT_EQ(api.get("/v1/responses/").status, 404);
  const Reply gone = api.post("/v1/responses", response_body({{"previous_response_id", id}}));
  EXPECT_EQ(gone.status, 400);
  EXPECT_EQ(gone.json()["error"]["code"], "previous_response_not_found");
  const TestJson unkept = api.post("/v1/responses", response_body({{"store", false}})).json();
  EXPECT_EQ(api.get("/v1/responses/" + unkept["id"].get<std::string>()).status, 404);
}

TEST(Responses, CancelEndsWhatRuns) {
  Api api;
  api.host->waits = true;
  Reply reply;
  const auto exchange = std::make_shared<RecordingExchange>(reply);
  make_api(api.context)(
      {.method = "POST", .path = "/v1/responses", .body = response_body({{"stream", true}}).dump()},
      exchange);
  const std::string id = reply.events().front()["response"]["id"];
  EXPECT_EQ(api.get("/v1/responses/" + id).json()["status"], "in_progress");
  EXPECT_EQ(api.post("/v1/responses", response_body({{"previous_response_id", id}})).status, 400);
  const Reply cancelled = api.post("/v1/responses/" + id + "/cancel", TestJson::object());
  EXPECT_EQ(cancelled.json()["status"], "cancelled");
  exchange->run();
  EXPECT_THAT(api.host->cancelled, ElementsAre(1U));
  api.host->waiting.at(0).on_end(Response{.finish_reason = FinishReason::kCancelled});
  exchange->run();
  EXPECT_TRUE(reply.has_ended);
  EXPECT_EQ(reply.events().back()["response"]["status"], "cancelled");
  EXPECT_EQ(api.get("/v1/responses/" + id).json()["status"], "cancelled");
  EXPECT_EQ(api.post("/v1/responses/" + id + "/cancel", TestJson::object()).status, 200);
}

TEST(Responses, WhatAClientLeavesBehindCanBeEvicted) {
  Api api;
  api.host->waits = true;
  Reply reply;
  const auto exchange = std::make_shared<RecordingExchange>(reply);
  make_api(api.context)(
      {.method = "POST", .path = "/v1/responses", .body = response_body({{"stream", true}}).dump()},
      exchange);
  const std::string id = reply.events().front()["response"]["id"];
  exchange->leave();
  EXPECT_EQ(api.get("/v1/responses/" + id).json()["status"], "failed");
  ResponseStore small(10'000);
  for (int i = 0; i < 1000; ++i) {
    small.put(std::to_string(i), {std::string(1000, 'x'), {}, nullptr});
    EXPECT_LE(small.num_bytes(), 10'000);
  }
  EXPECT_TRUE(small.get("999").has_value());
  EXPECT_FALSE(small.get("0").has_value());
  small.put("running", {std::string(20'000, 'x'), {}, [] {}});
  EXPECT_TRUE(small.get("running").has_value()) << "what runs is kept";
  EXPECT_FALSE(small.get("999").has_value());
}

TEST(Responses, WrongFieldsAreNamed) {
  Api api;
  for (const auto& [fields, param] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"({"input": null})", "input"},
           {R"({"input": []})", "input"},
           {R"({"input": [{"type": "image"}]})", "input[0].type"},
           {R"({"input": [{"role": "user", "content": [{"type": "input_image"}]}]})",
            "input[0].content[0]"},
           {R"({"input": [{"type": "function_call", "call_id": "x"}]})", "input[0].name"},
           {R"({"max_output_tokens": 0})", "max_output_tokens"},
           {R"({"reasoning": {"effort": "most"}})", "reasoning.effort"},
           {R"({"background": true})", "background"},
           {R"({"text": {"format": {"type": "xml"}}})", "text.format.type"},
           {R"({"tools": [{"type": "web_search"}]})", "tools[0].type"}}) {
    const Reply reply = api.post("/v1/responses", response_body(TestJson::parse(fields)));
    EXPECT_EQ(reply.status, 400) << fields;
    EXPECT_EQ(reply.json()["error"]["param"], param) << reply.body;
  }
}

}  // namespace
}  // namespace nibble::server
