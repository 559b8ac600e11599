// What /v1/completions chooses and shows of the answers that it gets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/server/scripted_api.h"

namespace nibble::server {
namespace {

using testing::HasSubstr;

// Begins a request, whose answers the test gives itself.
class Pending {
 public:
  explicit Pending(const TestJson& body) {
    api.host->waits = true;
    make_api(api.context)({.method = "POST", .path = "/v1/completions", .body = body.dump()},
                          exchange_);
  }
  const Reply& answer(const std::vector<Response>& responses) {
    EXPECT_EQ(api.host->waiting.size(), responses.size()) << reply_.body;
    for (std::size_t i = 0; i < api.host->waiting.size(); ++i) {
      api.host->waiting[i].on_end(responses.at(i));
    }
    exchange_->run();
    return reply_;
  }

  Api api;

 private:
  Reply reply_;
  std::shared_ptr<RecordingExchange> exchange_ = std::make_shared<RecordingExchange>(reply_);
};

Response answer_of(const std::string& text, double logprob) {
  Response out{.content = text, .cumulative_logprob = logprob, .seed = text.size()};
  out.usage = {.prompt_tokens = 7, .completion_tokens = 3};
  return out;
}

TEST(Completions, BestOfShowsTheLikeliestAndCountsAll) {
  Pending pending({{"prompt", {"p", "q"}}, {"best_of", 3}, {"n", 2}, {"receipt", true}});
  const TestJson reply =
      pending
          .answer({answer_of("a", -3), answer_of("bb", -1), answer_of("ccc", -2),
                   answer_of("dddd", -2), answer_of("eeeee", -2), answer_of("ffffff", -0.5)})
          .json();
  std::vector<std::string> texts;
  for (const TestJson& choice : reply["choices"]) {
    EXPECT_EQ(choice["index"], texts.size());
    EXPECT_TRUE(choice["logprobs"].is_null()) << "nobody asked for them";
    EXPECT_EQ(reply["receipt"]["choices"][texts.size()]["seed"],
              choice["text"].get<std::string>().size());
    texts.push_back(choice["text"]);
  }
  EXPECT_EQ(texts, (std::vector<std::string>{"bb", "ccc", "ffffff", "dddd"}));
  EXPECT_EQ(reply["usage"]["completion_tokens"], 18);
  EXPECT_EQ(reply["usage"]["prompt_tokens"], 14);
  for (const Request& request : pending.api.host->requests) {
    EXPECT_EQ(request.top_logprobs, 0) << "what the likeliest are told by";
  }
}

TEST(Completions, BestOfIsAtLeastNAndOfWholeReplies) {
  Api api;
  api.host->script = "one";
  const auto refusal = [&api](TestJson body) {
    body["prompt"] = "p";
    const Reply reply = api.post("/v1/completions", body);
    EXPECT_EQ(reply.status, 400) << body;
    EXPECT_EQ(reply.json()["error"]["param"], "best_of");
    return reply.json()["error"]["message"].get<std::string>();
  };
  EXPECT_THAT(refusal({{"n", 3}, {"best_of", 2}}), HasSubstr("want n, 3, or more, found 2"));
  EXPECT_THAT(refusal({{"best_of", 2}, {"stream", true}}), HasSubstr("stream"));
  EXPECT_THAT(refusal({{"best_of", 129}}), HasSubstr("128"));
  const Reply equal =
      api.post("/v1/completions", {{"prompt", "p"}, {"n", 2}, {"best_of", 2}, {"stream", true}});
  EXPECT_EQ(equal.status, 200);
  EXPECT_EQ(api.host->requests.back().top_logprobs, -1) << "nothing to choose";
}

// Of the demo's vocabulary, so that the tokens have texts.
TokenLogprob token_of(const std::string& text, float logprob) {
  TokenLogprob out{.id = demo_tokenizer().encode(text, text::SpecialTokens::kAsText).front(),
                   .logprob = logprob};
  if (!std::isnan(logprob)) {
    out.top = {{out.id, logprob}};
  }
  return out;
}

TEST(Completions, EchoWithLogprobsShowsThoseOfThePrompt) {
  Pending pending({{"prompt", "o\xC3\xA9z"}, {"echo", true}, {"logprobs", 1}, {"n", 2}});
  ASSERT_EQ(pending.api.host->requests.size(), 2U);
  EXPECT_EQ(pending.api.host->requests[0].prompt_logprobs, 1);
  EXPECT_EQ(pending.api.host->requests[1].prompt_logprobs, -1) << "once is enough";
  Response first = answer_of("x", -1);
  first.prompt_logprobs = {token_of("o", NAN), token_of("\xC3\xA9", -2), token_of("z", -3)};
  first.logprobs = {token_of("x", -4)};
  Response second = answer_of("y", -2);
  second.logprobs = {token_of("y", -5)};
  const TestJson reply = pending.answer({first, second}).json();
  const auto& host = *pending.api.host;
  for (std::size_t i = 0; i < 2; ++i) {
    const TestJson& choice = reply["choices"][i];
    const std::string answer = i == 0 ? "x" : "y";
    EXPECT_EQ(choice["text"], "o\xC3\xA9z" + answer);
    const TestJson& lists = choice["logprobs"];
    EXPECT_EQ(lists["token_logprobs"],
              TestJson::parse(i == 0 ? "[null, -2.0, -3.0, -4.0]" : "[null, -2.0, -3.0, -5.0]"));
    EXPECT_TRUE(lists["top_logprobs"][0].is_null());
    EXPECT_EQ(lists["top_logprobs"][2].begin().key(), host.token_bytes(token_of("z", -3).id));
    EXPECT_EQ(lists["tokens"].size(), 4U);
    EXPECT_EQ(lists["text_offset"][0], 0);
  }
}

TEST(Completions, EchoWithLogprobsIsRefusedInAStream) {
  Api api;
  const Reply reply = api.post(
      "/v1/completions", {{"prompt", "p"}, {"echo", true}, {"logprobs", 1}, {"stream", true}});
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.json()["error"]["param"], "logprobs");
  api.host->script = "one";
  EXPECT_EQ(
      api.post("/v1/completions", {{"prompt", "p"}, {"logprobs", 1}, {"stream", true}}).status,
      200);
  EXPECT_EQ(api.host->requests.back().prompt_logprobs, -1);
}

}  // namespace
}  // namespace nibble::server
