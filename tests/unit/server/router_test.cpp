// What holds for every endpoint, and the endpoints that generate nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/status_line.h"
#include "server/usage.h"
#include "unit/server/scripted_api.h"

namespace nibble::server {
namespace {

using testing::HasSubstr;

TEST(Router, UnknownPathsAndMethods) {
  Api api;
  EXPECT_EQ(api.get("/nothing").status, 404);
  EXPECT_THAT(api.get("/nothing").json()["error"]["message"].get<std::string>(),
              HasSubstr("/nothing"));
  const Reply wrong = api.get("/v1/chat/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("allow"), "POST");
  for (const char* body : {"", "{", "[]", "\xFF", "null", "{\"a\":}"}) {
    const Reply reply = api.call({.method = "POST", .path = "/v1/chat/completions", .body = body});
    EXPECT_EQ(reply.status, 400) << body;
    EXPECT_TRUE(reply.json().contains("error"));
  }
  const std::string deep(100'000, '[');
  const Reply reply =
      api.call({.method = "POST", .path = "/v1/completions", .body = "{\"a\":" + deep});
  EXPECT_THAT(reply.json()["error"]["message"].get<std::string>(), HasSubstr("200 levels"));
  EXPECT_EQ(api.post("/v1/embeddings", {{"input", "x"}}).status, 400);
}

TEST(Router, KeysOpenEverythingButHealthAndMetrics) {
  Api api({.model_names = {"demo"}, .api_keys = {"one", "two"}});
  for (const char* path : {"/health", "/live", "/version", "/metrics"}) {
    EXPECT_EQ(api.get(path).status, 200) << path;
  }
  EXPECT_EQ(api.get("/v1/models").status, 401);
  EXPECT_EQ(api.get("/nothing").status, 401) << "says nothing about what there is";
  EXPECT_EQ(api.get("/v1/models").json()["error"]["code"], "invalid_api_key");
  EXPECT_EQ(api.get("/v1/models", {{"authorization", "Bearer one"}}).status, 200);
  EXPECT_EQ(api.get("/v1/models", {{"x-api-key", "two"}}).status, 200);
  for (const char* wrong : {"Bearer on", "Bearer onee", "Bearer ", "one", "Basic one"}) {
    EXPECT_EQ(api.get("/v1/models", {{"authorization", wrong}}).status, 401) << wrong;
  }
  EXPECT_TRUE(is_same_key("abc", "abc"));
  EXPECT_FALSE(is_same_key("abcabc", "abc"));
  EXPECT_FALSE(is_same_key("", ""));
}

TEST(Router, OriginsAreAllowedByName) {
  Api closed;
  EXPECT_EQ(
      closed.get("/health", {{"origin", "http://a"}}).headers.count("access-control-allow-origin"),
      0U);
  Api named({.model_names = {"demo"}, .allowed_origins = {"http://a"}});
  EXPECT_EQ(
      named.get("/health", {{"origin", "http://a"}}).headers.at("access-control-allow-origin"),
      "http://a");
  EXPECT_EQ(
      named.get("/health", {{"origin", "http://b"}}).headers.count("access-control-allow-origin"),
      0U);
  Api open({.model_names = {"demo"}, .api_keys = {"k"}, .allowed_origins = {"*"}});
  const Reply asked = open.call(
      {.method = "OPTIONS", .path = "/v1/chat/completions", .headers = {{"origin", "http://b"}}});
  EXPECT_EQ(asked.status, 204);
  EXPECT_EQ(asked.headers.at("access-control-allow-origin"), "*");
  EXPECT_THAT(asked.headers.at("access-control-allow-headers"), HasSubstr("authorization"));
}

TEST(Router, RequestIdsComeBackAndAreLimited) {
  Api api;
  EXPECT_EQ(api.get("/health", {{"x-request-id", "mine-1"}}).headers.at("x-request-id"), "mine-1");
  const std::string ours = api.get("/health").headers.at("x-request-id");
  EXPECT_NE(ours, api.get("/health").headers.at("x-request-id"));
  for (const std::string& wrong :
       {std::string(129, 'x'), std::string("a b"), std::string("\x01")}) {
    const Reply reply = api.get("/health", {{"x-request-id", wrong}});
    EXPECT_EQ(reply.status, 400);
    EXPECT_NE(reply.headers.at("x-request-id"), wrong);
  }
}

TEST(Router, HealthFollowsTheLifeOfTheServer) {
  Api api;
  api.context.loaded = nullptr;
  EXPECT_EQ(api.get("/health").status, 503);
  EXPECT_EQ(api.get("/health").body,
            R"({"error":{"code":503,"message":"Loading model","type":"unavailable_error"}})");
  EXPECT_EQ(api.get("/live").status, 200);
  EXPECT_EQ(api.get("/v1/models").status, 503);
  api.context.loaded = &api.loaded;
  EXPECT_EQ(api.get("/health").body, R"({"status":"ok"})");
  api.context.is_draining = true;
  EXPECT_EQ(api.get("/health").status, 503);
  EXPECT_EQ(api.get("/live").status, 200);
  EXPECT_EQ(api.get("/v1/models").status, 200);
  const Reply refused = api.post("/v1/completions", {{"prompt", "a"}});
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.at("retry-after"), "1");
  api.context.is_draining = false;
  api.host->state.state = ServiceState::kFailed;
  api.host->state.failure = {Code::kDevice, "lost"};
  EXPECT_EQ(api.get("/live").status, 503);
  EXPECT_THAT(api.get("/health").body, HasSubstr("lost"));
}

TEST(Admin, ModelsAndTheirNames) {
  Api api;
  const TestJson list = api.get("/v1/models").json();
  EXPECT_EQ(list["data"][0]["id"], "demo");
  EXPECT_EQ(list["data"][1]["id"], "alias");
  EXPECT_EQ(list["data"][0]["max_model_len"], 256);
  api.host->script = "x";
  EXPECT_EQ(api.post("/v1/completions", {{"prompt", "a"}, {"model", "alias"}}).status, 200);
  const Reply unknown = api.post("/v1/completions", {{"prompt", "a"}, {"model", "gpt"}});
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(unknown.json()["error"]["code"], "model_not_found");
}

TEST(Admin, TokensAndBack) {
  Api api;
  const TestJson ids = api.post("/tokenize", {{"prompt", "Hello <|end|>"}}).json();
  EXPECT_EQ(ids["count"], ids["tokens"].size());
  const TestJson text = api.post("/detokenize", {{"tokens", ids["tokens"]}}).json();
  EXPECT_EQ(text["prompt"], "Hello <|end|>");
  EXPECT_EQ(text["content"], "Hello <|end|>");
  const TestJson control =
      api.post("/tokenize", {{"content", "<|end|>"}, {"parse_special", true}}).json();
  EXPECT_EQ(control["count"], 1) << "only when asked";
  EXPECT_GT(api.post("/tokenize", {{"content", "<|end|>"}}).json()["count"], 1);
  EXPECT_EQ(api.post("/tokenize", {{"messages", {{{"role", "user"}, {"content", "x"}}}}})
                .json()["tokens"],
            TestJson({1, 2, 3}));
  for (const TestJson& wrong : {TestJson({{"tokens", {-1}}}), TestJson({{"tokens", {4096}}}),
                                TestJson({{"tokens", "x"}}), TestJson::object()}) {
    EXPECT_EQ(api.post("/detokenize", wrong).status, 400) << wrong;
  }
  EXPECT_EQ(api.post("/tokenize", {{"prompt", 5}}).status, 400);
}

TEST(Metrics, HaveTheNamesAndEdgesOfVllm) {
  Api api;
  api.host->script = "one two three";
  api.host->state.running = 3;
  api.host->state.full_pages = {.used = 1, .total = 4};
  ASSERT_EQ(api.post("/v1/completions", {{"prompt", "a"}, {"stream", true}}).status, 200);
  const std::string text = api.get("/metrics").body;
  for (const char* line :
       {"nibble:engine_info{activation=\"int8\",model_name=\"demo\"} 1\n",
        "nibble:num_requests_running{model_name=\"demo\"} 3\n",
        "nibble:num_requests_waiting{model_name=\"demo\"} 0\n",
        "nibble:kv_cache_usage_perc{model_name=\"demo\"} 0.25\n",
        "nibble:prefix_cache_queries_total{model_name=\"demo\"} 0\n",
        "nibble:prefix_cache_hits_total{model_name=\"demo\"} 0\n",
        "# TYPE nibble:prompt_tokens_total counter\n",
        "# TYPE nibble:num_preemptions_total counter",
        "nibble:request_success_total{finished_reason=\"stop\",model_name=\"demo\"} 1\n",
        "nibble:request_success_total{finished_reason=\"abort\",model_name=\"demo\"} 0\n",
        "nibble:time_to_first_token_seconds_bucket{le=\"0.001\",model_name=\"demo\"} 1\n",
        "nibble:time_to_first_token_seconds_bucket{le=\"2560.0\",model_name=\"demo\"} 1\n",
        "nibble:inter_token_latency_seconds_bucket{le=\"0.01\",model_name=\"demo\"}",
        "nibble:e2e_request_latency_seconds_bucket{le=\"7680.0\",model_name=\"demo\"} 1\n",
        "nibble:request_queue_time_seconds_count{model_name=\"demo\"} 1\n",
        "nibble:request_prefill_time_seconds_sum{model_name=\"demo\"} 0\n",
        "nibble:request_decode_time_seconds_count",
        "nibble:request_inference_time_seconds_count",
        "nibble:request_prompt_tokens_bucket{le=\"5.0\",model_name=\"demo\"} 0\n",
        "nibble:request_prompt_tokens_bucket{le=\"10.0\",model_name=\"demo\"} 1\n",
        "nibble:request_prompt_tokens_bucket{le=\"200.0\",model_name=\"demo\"} 1\n",
        "nibble:request_prompt_tokens_bucket{le=\"+Inf\",model_name=\"demo\"} 1\n",
        "nibble:request_generation_tokens_count{model_name=\"demo\"} 1\n",
        "nibble:http_replies_total{status=\"2xx\",model_name=\"demo\"} 1\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(StatusLine, IsThatOfVllmAndSilentWhileNothingHappens) {
  StatusLine line;
  ServiceStats stats;
  EXPECT_FALSE(line.next(stats, std::chrono::seconds(10)).has_value());
  stats.prompt_tokens = 100;
  stats.generation_tokens = 55;
  stats.running = 2;
  stats.waiting = 1;
  stats.full_pages = {.used = 1, .total = 8};
  stats.prefix_queried_tokens = 200;
  stats.prefix_hit_tokens = 50;
  EXPECT_EQ(line.next(stats, std::chrono::seconds(10)),
            "Engine 000: Avg prompt throughput: 10.0 tokens/s, Avg generation throughput: 5.5 "
            "tokens/s, Running: 2 reqs, Waiting: 1 reqs, GPU KV cache usage: 12.5%, Prefix cache "
            "hit rate: 25.0%");
  stats.running = stats.waiting = 0;
  EXPECT_TRUE(line.next(stats, std::chrono::seconds(10)).has_value()) << "the end of work";
  EXPECT_FALSE(line.next(stats, std::chrono::seconds(10)).has_value());
}

TEST(Logprobs, AreNumbersWhateverTheModelSays) {
  EXPECT_EQ(finite_logprob(-std::numeric_limits<float>::infinity()), -9999.0F);
  EXPECT_EQ(finite_logprob(std::numeric_limits<float>::quiet_NaN()), -9999.0F);
  EXPECT_EQ(finite_logprob(-1.5F), -1.5F);
}

TEST(Log, NeverHoldsWhatWasSaid) {
  for (const bool is_json : {false, true}) {
    std::FILE* file = std::tmpfile();
    Log log(file, is_json, LogLevel::kInfo);
    ApiContext context({.model_names = {"demo"}}, log);
    Api api;
    context.loaded = &api.loaded;
    api.host->script = "<|channel|>final<|message|>secret answer<|return|>";
    Reply reply;
    const auto exchange = std::make_shared<RecordingExchange>(reply);
    make_api(context)({.method = "POST",
                       .path = "/v1/chat/completions",
                       .headers = {{"x-request-id", "id-7"}},
                       .body = R"({"messages":[{"role":"user","content":"secret prompt"}]})"},
                      exchange);
    exchange->run();
    std::rewind(file);
    std::string text(4096, ' ');
    text.resize(std::fread(text.data(), 1, text.size(), file));
    std::fclose(file);
    EXPECT_THAT(text, HasSubstr("id-7"));
    EXPECT_THAT(text, testing::Not(HasSubstr("secret")));
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
    if (is_json) {
      EXPECT_EQ(TestJson::parse(text)["prompt_tokens"], 7);
    }
  }
}

}  // namespace
}  // namespace nibble::server
