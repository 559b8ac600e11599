// Chat and text completions over scripted tokens: what clients get, whole and in pieces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/server/client_view.h"
#include "unit/server/scripted_api.h"

namespace nibble::server {
namespace {

using testing::HasSubstr;

const std::string kAnalysis = "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant";
const std::string kFinal = "<|channel|>final<|message|>It is \xF0\x9F\x98\xBA 42.<|return|>";
const std::string kCall =
    "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\": "
    "\"Bern\"}<|call|>";

TestJson chat(const TestJson& fields = TestJson::object()) {
  TestJson body = {{"messages", {{{"role", "user"}, {"content", "hello"}}}}};
  body.update(fields);
  return body;
}

TestJson weather_tool() {
  return {{"type", "function"},
          {"function",
           {{"name", "weather"}, {"parameters", {{"type", "object"}, {"properties", {}}}}}}};
}

TEST(Chat, WholeReplyHasEveryField) {
  Api api;
  api.host->script = kAnalysis + kFinal;
  const Reply reply = api.post("/v1/chat/completions", chat());
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.headers.at("content-type"), "application/json");
  const TestJson json = reply.json();
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_EQ(json["model"], "demo");
  EXPECT_THAT(json["id"].get<std::string>(), testing::StartsWith("chatcmpl-"));
  EXPECT_GT(json["created"], 1'700'000'000);
  const TestJson& message = json["choices"][0]["message"];
  EXPECT_EQ(message["role"], "assistant");
  EXPECT_EQ(message["content"], "It is \xF0\x9F\x98\xBA 42.");
  EXPECT_EQ(message["reasoning_content"], "Think.");
  EXPECT_EQ(message["reasoning"], "Think.");
  EXPECT_FALSE(message.contains("tool_calls"));
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
  const TestJson& usage = json["usage"];
  EXPECT_EQ(usage["prompt_tokens"], 7);
  EXPECT_EQ(usage["total_tokens"], 7 + usage["completion_tokens"].get<int>());
  EXPECT_EQ(usage["prompt_tokens_details"]["cached_tokens"], 2);
  EXPECT_GT(usage["completion_tokens_details"]["reasoning_tokens"], 0);
}

// Well-formed and mangled streams, each cut by every budget: streamed equals whole, the reason of
// the end is exact, no text of the user is lost.
TEST(Chat, StreamEqualsWholeForEveryScriptAndBudget) {
  const std::string start = "<|start|>assistant";
  const std::string scripts[] = {
      kAnalysis + kFinal,
      kAnalysis + kCall,
      kCall,
      "I'm sorry, I can't.<|end|>" + start + "<|channel|>analysis<|message|>x<|end|>" + start +
          "<|channel|>final<|message|>Done.<|return|>",
      "<|channel|>analysis 7<|message|>a<|end|>" + start +
          "<|channel|>..final<|message|>b<|return|>",
      "<|channel|>commentary to=functions.other<|message|>[{\"a\":1}]<|call|>",
      "<|channel|>commentary<|message|>Let me see.<|end|>" + start + kCall,
      "<|channel|>final<|message|>A<|end|>" + start +
          "<|channel|>commentary to=functions.none<|message|>{\"a\":\"line1\nline2\"}]<|call|>",
      "<|channel|><|channel|>analysis to=<|channel|>{}<|call|>",
  };
  for (const std::string& script : scripts) {
    const auto length =
        static_cast<int>(demo_tokenizer().encode(script, text::SpecialTokens::kRecognise).size());
    for (int budget = 1; budget <= length; ++budget) {
      Api api;
      api.host->script = script;
      TestJson body = chat({{"max_tokens", budget}, {"tools", {weather_tool()}}});
      const Reply whole = api.post("/v1/chat/completions", body);
      ASSERT_EQ(whole.status, 200) << whole.body;
      body["stream"] = true;
      const Reply stream = api.post("/v1/chat/completions", body);
      ASSERT_EQ(stream.status, 200);
      ASSERT_TRUE(stream.has_ended);
      const TestJson message = plain(whole.json());
      EXPECT_EQ(joined(stream.events()), message) << script << " cut at " << budget;
      if (budget < length) {
        EXPECT_EQ(message["finish"], "length");
      } else {
        EXPECT_EQ(message["finish"], message["calls"].empty() ? "stop" : "tool_calls");
        EXPECT_FALSE(message["content"] == "" && message["reasoning"] == "" &&
                     message["calls"].empty())
            << script;
      }
      for (const TestJson& call : message["calls"]) {
        EXPECT_EQ(call["name"], "weather") << "only what was offered";
      }
    }
  }
}

TEST(Chat, CallOfAToolThatWasNotOfferedIsText) {
  Api api;
  api.host->script = "<|channel|>commentary to=functions.other<|message|>{\"a\":1}<|call|>";
  const TestJson none = api.post("/v1/chat/completions", chat()).json();
  EXPECT_EQ(none["choices"][0]["message"]["content"], "{\"a\":1}");
  EXPECT_EQ(none["choices"][0]["finish_reason"], "stop");
  api.host->script = kCall;
  const TestJson refused =
      api.post("/v1/chat/completions", chat({{"tools", {weather_tool()}}, {"tool_choice", "none"}}))
          .json();
  EXPECT_EQ(refused["choices"][0]["message"]["content"], "{\"city\": \"Bern\"}");
  EXPECT_TRUE(std::get<ChatPrompt>(api.host->requests.back().prompt).tools.empty());
}

TEST(Chat, StreamBeginsWithTheRoleAndEndsWithUsageWhenAsked) {
  Api api;
  api.host->script = kAnalysis + kFinal;
  const Reply reply =
      api.post("/v1/chat/completions",
               chat({{"stream", true}, {"stream_options", {{"include_usage", true}}}, {"n", 2}}));
  EXPECT_EQ(reply.headers.at("content-type"), "text/event-stream; charset=utf-8");
  const std::vector<TestJson> events = reply.events();
  EXPECT_EQ(events.front()["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(events.front()["object"], "chat.completion.chunk");
  std::map<int, int> ends;
  for (std::size_t i = 0; i + 1 < events.size(); ++i) {
    ASSERT_EQ(events[i]["choices"].size(), 1U);
    EXPECT_TRUE(events[i].at("usage").is_null());
    EXPECT_EQ(events[i]["id"], events[0]["id"]);
    ends[events[i]["choices"][0]["index"].get<int>()] +=
        events[i]["choices"][0]["finish_reason"].is_null() ? 0 : 1;
  }
  EXPECT_EQ(ends, (std::map<int, int>{{0, 1}, {1, 1}}));
  EXPECT_TRUE(events.back()["choices"].empty());
  EXPECT_EQ(events.back()["usage"]["prompt_tokens"], 7) << "once, for both choices";
  const TestJson whole = api.post("/v1/chat/completions", chat({{"n", 2}})).json();
  EXPECT_EQ(events.back()["usage"], whole["usage"]);
  for (const TestJson& event :
       api.post("/v1/chat/completions", chat({{"stream", true}})).events()) {
    EXPECT_FALSE(event.contains("usage"));
  }
}

TEST(Chat, LogprobsAreOfTheVisibleTextAndAlwaysNumbers) {
  Api api;
  api.host->script = kAnalysis + kFinal;
  const TestJson fields = {{"logprobs", true}, {"top_logprobs", 2}};
  const TestJson whole = api.post("/v1/chat/completions", chat(fields)).json();
  std::string text;
  for (const TestJson& token : whole["choices"][0]["logprobs"]["content"]) {
    for (const TestJson& byte : token["bytes"]) {
      text += static_cast<char>(byte.get<int>());
    }
    EXPECT_EQ(token["logprob"], -0.5);
    EXPECT_EQ(token["top_logprobs"][1]["logprob"], -9999.0);
  }
  EXPECT_EQ(text, "It is \xF0\x9F\x98\xBA 42.");
  TestJson streamed = fields;
  streamed["stream"] = true;
  TestJson content = TestJson::array();
  std::string pieces;
  for (const TestJson& event : api.post("/v1/chat/completions", chat(streamed)).events()) {
    const TestJson& choice = event["choices"][0];
    pieces += choice["delta"].value("content", "");
    if (!choice["logprobs"].is_null()) {
      content.insert(content.end(), choice["logprobs"]["content"].begin(),
                     choice["logprobs"]["content"].end());
    }
  }
  EXPECT_EQ(content, whole["choices"][0]["logprobs"]["content"]);
  EXPECT_EQ(pieces, text);
}

TEST(Chat, HistoryOfEveryKindReachesThePrompt) {
  Api api;
  api.host->script = kFinal;
  const TestJson body = TestJson::parse(R"({"reasoning_effort": "high", "seed": 5, "stop": "x",
    "tools": [{"type": "function", "function": {"name": "f.g-1", "description": "d"}}],
    "messages": [
      {"role": "system", "content": "s"},
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
      {"role": "assistant", "content": null, "reasoning_content": "r", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "f.g-1", "arguments": "{}"}}]},
      {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "42"}]},
      {"role": "user", "content": "u"}]})");
  const Reply reply = api.post("/v1/chat/completions", body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Request& request = api.host->requests.at(0);
  const auto& prompt = std::get<ChatPrompt>(request.prompt);
  ASSERT_EQ(prompt.messages.size(), 5U);
  EXPECT_EQ(prompt.messages[1].content, "ab");
  EXPECT_EQ(prompt.messages[2].reasoning, "r");
  EXPECT_EQ(prompt.messages[2].tool_calls.at(0).name, "f.g-1");
  EXPECT_EQ(prompt.messages[3].content, "42");
  EXPECT_EQ(prompt.messages[3].tool_call_id, "c1");
  EXPECT_EQ(prompt.effort, ReasoningEffort::kHigh);
  EXPECT_EQ(prompt.current_date.size(), 10U);
  EXPECT_EQ(request.sampling.seed, 5U);
  EXPECT_EQ(request.stop, std::vector<std::string>{"x"});
}

TEST(Chat, WrongFieldsAreNamed) {
  struct Case {
    const char* fields;
    const char* param;
  };
  const Case cases[] = {
      {R"({"messages": null})", "messages"},
      {R"({"messages": "hi"})", "messages"},
      {R"({"messages": [7]})", "messages[0]"},
      {R"({"messages": [{"role": "king", "content": "x"}]})", "messages[0].role"},
      {R"({"messages": [{"role": "user"}]})", "messages[0].content"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})",
       "messages[0].content[0]"},
      {R"({"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]})",
       "messages[0].content[0]"},
      {R"({"messages": [{"role": "tool", "content": "x"}]})", "messages[0].tool_call_id"},
      {R"({"messages": [{"role": "assistant", "tool_calls": [{"id": "x"}]}]})",
       "messages[0].tool_calls[0].function"},
      {R"({"tools": [{"type": "web"}]})", "tools[0].type"},
      {R"({"tools": [{"type": "function", "function": {"name": "a b"}}]})",
       "tools[0].function.name"},
      {R"({"tool_choice": "perhaps"})", "tool_choice"},
      {R"({"temperature": -1})", "temperature"},
      {R"({"temperature": "hot"})", "temperature"},
      {R"({"top_p": 2})", "top_p"},
      {R"({"max_tokens": 0})", "max_tokens"},
      {R"({"max_tokens": -1})", "max_tokens"},
      {R"({"max_tokens": 1.5})", "max_tokens"},
      {R"({"max_tokens": "10"})", "max_tokens"},
      {R"({"max_tokens": 2147483648})", "max_tokens"},
      {R"({"max_tokens": 9223372036854775808})", "max_tokens"},
      {R"({"max_tokens": 1e30})", "max_tokens"},
      {R"({"max_completion_tokens": true})", "max_completion_tokens"},
      {R"({"seed": -1})", "seed"},
      {R"({"seed": 9223372036854775808})", "seed"},
      {R"({"seed": 1.5})", "seed"},
      {R"({"n": 0})", "n"},
      {R"({"n": 1000000})", "n"},
      {R"({"stop": ""})", "stop"},
      {R"({"stop": ["a", 1]})", "stop"},
      {R"({"stop_token_ids": [-1]})", "stop_token_ids"},
      {R"({"stop_token_ids": [4611686018427387904]})", "stop_token_ids"},
      {R"({"logit_bias": {"x": 1}})", "logit_bias"},
      {R"({"logit_bias": {"99999999999": 1}})", "logit_bias"},
      {R"({"logit_bias": [1]})", "logit_bias"},
      {R"({"logprobs": 3})", "logprobs"},
      {R"({"logprobs": true, "top_logprobs": 21})", "top_logprobs"},
      {R"({"top_logprobs": 2})", "top_logprobs"},
      {R"({"stream": "yes"})", "stream"},
      {R"({"stream_options": {"include_usage": true}})", "stream_options"},
      {R"({"reasoning_effort": "extreme"})", "reasoning_effort"},
      {R"({"model": 5})", "model"},
  };
  Api api;
  api.host->script = kFinal;
  for (const Case& one : cases) {
    const Reply reply = api.post("/v1/chat/completions", chat(TestJson::parse(one.fields)));
    EXPECT_EQ(reply.status, 400) << one.fields;
    const TestJson error = reply.json()["error"];
    EXPECT_EQ(error["param"], one.param) << one.fields << ": " << reply.body;
    EXPECT_EQ(error["type"], "invalid_request_error");
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("want")) << one.fields;
  }
  EXPECT_TRUE(api.host->requests.empty());
  EXPECT_EQ(api.post("/v1/chat/completions", chat()).status, 200);
}

TEST(Chat, WhatCannotBeServedIsRefusedAndNeverIgnored) {
  Api api;
  for (const auto& [fields, param] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"({"guided_regex": "a+"})", "guided_regex"},
           {R"({"modalities": ["text", "audio"]})", "modalities"},
           {R"({"functions": [{"name": "f"}]})", "functions"}}) {
    const Reply reply = api.post("/v1/chat/completions", chat(TestJson::parse(fields)));
    EXPECT_EQ(reply.status, 400);
    EXPECT_EQ(reply.json()["error"]["param"], param);
    EXPECT_EQ(reply.json()["error"]["code"], "unsupported");
  }
}

TEST(Chat, FormsReachTheModel) {
  Api api;
  api.host->script = kFinal;
  const auto sent = [&api](const char* path, const TestJson& body) -> const Request& {
    const Reply reply = api.post(path, body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return api.host->requests.back();
  };
  const TestJson schema = {{"type", "object"}};
  const TestJson named = {{"name", "n"}, {"schema", schema}, {"strict", true}};
  const ResponseFormat& format =
      sent("/v1/chat/completions",
           chat({{"response_format", {{"type", "json_schema"}, {"json_schema", named}}}}))
          .response_format;
  EXPECT_EQ(format.kind, ResponseFormat::Kind::kJsonSchema);
  EXPECT_EQ(format.schema_json, R"({"type":"object"})");
  EXPECT_EQ(format.name, "n");
  EXPECT_EQ(
      sent("/v1/completions", {{"prompt", "a"}, {"response_format", {{"type", "json_object"}}}})
          .response_format.kind,
      ResponseFormat::Kind::kJsonObject);
  EXPECT_EQ(
      sent("/v1/responses",
           {{"input", "a"}, {"text", {{"format", {{"type", "json_schema"}, {"schema", schema}}}}}})
          .response_format.schema_json,
      R"({"type":"object"})");
  TestJson tool = weather_tool();
  tool["function"]["strict"] = true;
  const auto& prompt = std::get<ChatPrompt>(
      sent("/v1/chat/completions",
           chat({{"tools", {tool}}, {"tool_choice", "required"}, {"parallel_tool_calls", false}}))
          .prompt);
  EXPECT_TRUE(prompt.tools.at(0).is_strict);
  EXPECT_EQ(prompt.tool_choice.kind, ToolChoice::Kind::kRequired);
  EXPECT_FALSE(prompt.parallel_tool_calls);
  const TestJson choice = {{"type", "function"}, {"function", {{"name", "weather"}}}};
  EXPECT_EQ(std::get<ChatPrompt>(sent("/v1/chat/completions",
                                      chat({{"tools", {weather_tool()}}, {"tool_choice", choice}}))
                                     .prompt)
                .tool_choice.name,
            "weather");
  for (const char* wrong : {R"({"response_format": {"type": "xml"}})",
                            R"({"response_format": {"type": "json_schema"}})",
                            R"({"response_format": {"type": "json_schema", "json_schema": {}}})",
                            R"({"tool_choice": {"type": "function"}})"}) {
    EXPECT_EQ(api.post("/v1/chat/completions", chat(TestJson::parse(wrong))).status, 400) << wrong;
  }
}

TEST(Chat, FailuresKeepTheirStatusBeforeTheStreamAndAreEventsAfterwards) {
  Api api;
  api.host->script = kFinal;
  api.host->refusal = {Code::kExhausted, "the queue is full: 9 requests are running or waiting"};
  const Reply full = api.post("/v1/chat/completions", chat({{"stream", true}}));
  EXPECT_EQ(full.status, 503);
  EXPECT_EQ(full.headers.at("retry-after"), "1");
  api.host->refusal = {Code::kInvalidArgument, "logit_bias: want ids in 0..31, found 99"};
  EXPECT_EQ(api.post("/v1/chat/completions", chat()).json()["error"]["param"], "logit_bias");
  api.host->refusal = {};
  api.host->failure = {Code::kInternal, "NaN"};
  EXPECT_EQ(api.post("/v1/chat/completions", chat()).status, 500);
  const Reply stream = api.post("/v1/chat/completions", chat({{"stream", true}}));
  EXPECT_EQ(stream.status, 200);
  EXPECT_TRUE(stream.has_ended);
  EXPECT_EQ(stream.events().back()["error"]["message"], "NaN");
}

TEST(Chat, ClientThatLeavesOrTimeThatRunsOutCancelsEveryChoice) {
  for (const bool is_late : {false, true}) {
    Api api({.model_names = {"demo"}, .request_timeout = std::chrono::seconds(1)});
    api.host->waits = true;
    Reply reply;
    const auto exchange = std::make_shared<RecordingExchange>(reply);
    make_api(api.context)(
        {.method = "POST", .path = "/v1/chat/completions", .body = chat({{"n", 3}}).dump()},
        exchange);
    EXPECT_EQ(api.context.num_open, 1);
    if (is_late) {
      std::exchange(exchange->late, nullptr)();
    } else {
      exchange->leave();
    }
    EXPECT_EQ(api.host->cancelled, (std::vector<RequestId>{1, 2, 3}));
    for (const RequestSink& sink : api.host->waiting) {
      sink.on_end(Response{.finish_reason = FinishReason::kCancelled});
    }
    exchange->run();
    EXPECT_EQ(reply.status, is_late ? 504 : 0);
    api.host->waiting.clear();
    EXPECT_EQ(api.context.num_open, 0) << "what a request held is free";
  }
}

TEST(Completions, PromptsOfEveryFormAndTheirChoices) {
  Api api;
  api.host->script = "one two";
  const auto reply = [&](const TestJson& prompt, TestJson fields = TestJson::object()) {
    fields["prompt"] = prompt;
    return api.post("/v1/completions", fields);
  };
  const TestJson one = reply("a").json();
  EXPECT_EQ(one["object"], "text_completion");
  EXPECT_EQ(one["choices"][0]["text"], "one two");
  EXPECT_EQ(one["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(api.host->requests.back().max_tokens, 16);
  const TestJson four = reply({"a", "b"}, {{"n", 2}, {"seed", 1}}).json();
  ASSERT_EQ(four["choices"].size(), 4U);
  EXPECT_EQ(four["choices"][3]["index"], 3);
  EXPECT_EQ(four["usage"]["prompt_tokens"], 14);
  const auto& requests = api.host->requests;
  EXPECT_NE(requests.back().sampling.seed, requests[requests.size() - 2].sampling.seed);
  EXPECT_EQ(requests[requests.size() - 2].sampling.seed, 1U);
  EXPECT_EQ(reply({5, 6}).status, 200);
  EXPECT_EQ(std::get<TokenPrompt>(requests.back().prompt).ids, (std::vector<std::int32_t>{5, 6}));
  EXPECT_EQ(reply({{5}, {6}}).json()["choices"].size(), 2U);
  for (const TestJson& wrong :
       {TestJson(), TestJson::array(), TestJson(5), TestJson({{"a", 1}}), TestJson({1, "a"}),
        TestJson({-1}), TestJson({4611686018427387904}), TestJson({"a", 1})}) {
    EXPECT_EQ(reply(wrong).status, 400) << wrong;
  }
  for (const char* fields : {R"({"max_tokens": 0})", R"({"suffix": "x"})", R"({"logprobs": 21})",
                             R"({"prompt_logprobs": 1})"}) {
    EXPECT_EQ(reply("a", TestJson::parse(fields)).status, 400) << fields;
  }
}

TEST(Completions, EchoAndLogprobsCountCharactersFromThePrompt) {
  Api api;
  api.host->script = "one two";
  const TestJson echo =
      api.post("/v1/completions", {{"prompt", "caf\xC3\xA9 "}, {"echo", true}, {"max_tokens", 0}})
          .json();
  EXPECT_EQ(echo["choices"][0]["text"], "caf\xC3\xA9 ");
  EXPECT_EQ(echo["choices"][0]["finish_reason"], "length");
  TestJson fields = {{"prompt", "a"}, {"logprobs", 1}};
  const TestJson whole = api.post("/v1/completions", fields).json();
  const TestJson& logprobs = whole["choices"][0]["logprobs"];
  std::string text;
  for (std::size_t i = 0; i < logprobs["tokens"].size(); ++i) {
    EXPECT_EQ(logprobs["text_offset"][i], text.size());
    text += logprobs["tokens"][i].get<std::string>();
  }
  EXPECT_EQ(text, "one two");
  fields["stream"] = true;
  std::string streamed;
  std::size_t num_tokens = 0;
  for (const TestJson& event : api.post("/v1/completions", fields).events()) {
    streamed += event["choices"][0]["text"].get<std::string>();
    if (!event["choices"][0]["logprobs"].is_null()) {
      EXPECT_EQ(event["choices"][0]["logprobs"]["text_offset"][0],
                logprobs["text_offset"][num_tokens++]);
    }
  }
  EXPECT_EQ(streamed, text);
  EXPECT_EQ(num_tokens, logprobs["tokens"].size());
}

TEST(Completions, BytesThatAreNoTextBecomeValidJson) {
  Api api;
  api.host->script = "\xF0\x9F\x98";
  const Reply reply = api.post("/v1/completions", {{"prompt", "a"}, {"logprobs", 1}});
  ASSERT_EQ(reply.status, 200);
  EXPECT_EQ(reply.json()["choices"][0]["text"], "\xEF\xBF\xBD");
}

}  // namespace
}  // namespace nibble::server
