// What a request took, in every form of the API and in the log.
#include "server/receipt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/server/scripted_api.h"

namespace nibble::server {
namespace {

using testing::HasSubstr;

TestJson body_of(const std::string& path) {
  TestJson body = {{"receipt", true}, {"seed", 5}};
  if (path == "/v1/completions") {
    body["prompt"] = "a";
  } else if (path == "/v1/responses") {
    body["input"] = "a";
  } else {
    body["messages"] = {{{"role", "user"}, {"content", "a"}}};
    body["max_tokens"] = 100;
  }
  return body;
}

// Of a stream, wherever it comes in it.
TestJson streamed_receipt(const std::vector<TestJson>& events) {
  TestJson found;
  for (const TestJson& event : events) {
    for (const TestJson* place :
         {&event, event.contains("response") ? &event["response"] : &event}) {
      if (place->contains("receipt")) {
        found = (*place)["receipt"];
      }
    }
  }
  return found;
}

TEST(Receipt, EveryApiGivesItOnRequestAndTheLogAlways) {
  for (const char* path :
       {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"}) {
    Api api;
    api.host->script = "one two<|return|>";
    TestJson body = body_of(path);
    const TestJson whole = api.post(path, body).json();
    const TestJson& receipt = whole["receipt"];
    ASSERT_EQ(receipt["choices"].size(), 1U) << path << whole;
    EXPECT_THAT(receipt["request_id"].get<std::string>(), testing::StartsWith("req-"));
    const TestJson& choice = receipt["choices"][0];
    EXPECT_EQ(choice["seed"], 5) << path;
    EXPECT_EQ(choice["cached_tokens"], 2);
    EXPECT_EQ(choice["prompt_tokens"], 7);
    EXPECT_EQ(choice["kernel_path"], TestJson({"gemm_a", "moe_b"}));
    for (const char* time : {"queue_ms", "prefill_ms", "decode_ms"}) {
      EXPECT_TRUE(choice[time].is_number()) << time;
    }
    EXPECT_THAT(api.logged(), HasSubstr("seed=5 kernel_path=gemm_a,moe_b"));
    body["stream"] = true;
    EXPECT_EQ(streamed_receipt(api.post(path, body).events())["choices"][0]["kernel_path"],
              choice["kernel_path"])
        << path;
    body.erase("receipt");
    body["stream"] = false;
    EXPECT_FALSE(api.post(path, body).json().contains("receipt")) << path;
  }
}

TEST(Receipt, SumsTheAnswersOfARequest) {
  Response a{.finish_reason = FinishReason::kStop,
             .seed = 3,
             .usage = {.prompt_tokens = 7, .completion_tokens = 2, .cached_tokens = 1},
             .timings = {.queue_ms = 1, .prefill_ms = 5, .decode_ms = 2},
             .kernels = {"x", "y"}};
  Response b{.finish_reason = FinishReason::kLength,
             .seed = 4,
             .usage = {.prompt_tokens = 7, .completion_tokens = 3, .cached_tokens = 4},
             .timings = {.queue_ms = 2, .prefill_ms = 1, .decode_ms = 9},
             .kernels = {"y", "z"}};
  const ReceiptSum sum = receipt_sum({a, std::nullopt, b});
  EXPECT_EQ(sum.usage.prompt_tokens, 7);
  EXPECT_EQ(sum.usage.completion_tokens, 5);
  EXPECT_EQ(sum.usage.cached_tokens, 4);
  EXPECT_EQ(sum.timings.queue_ms, 2);
  EXPECT_EQ(sum.timings.prefill_ms, 5);
  EXPECT_EQ(sum.timings.decode_ms, 9);
  EXPECT_EQ(sum.finish, "stop,length");
  EXPECT_EQ(sum.seed, 3U);
  EXPECT_EQ(sum.kernel_path, "x,y,z");
  EXPECT_EQ(receipt_sum({std::nullopt}).kernel_path, "");
}

}  // namespace
}  // namespace nibble::server
