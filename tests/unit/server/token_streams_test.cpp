// Any token stream, however its tokens arrive, through every API: a valid reply, streamed as it is
// whole.
#include "unit/server/token_streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nibble::server {
namespace {

constexpr int kNumChanged = 60;

// What is kept for the parser's fuzzer, and seeded changes of it.
std::map<std::string, Ids> streams() {
  const std::map<std::string, std::string> corpus = fuzz_corpus();
  std::map<std::string, Ids> out;
  std::vector<std::string> inputs;
  for (const auto& [name, input] : corpus) {
    out[name] = ids_of_fuzz_input(input);
    inputs.push_back(input);
  }
  std::mt19937 random(1);
  for (int i = 0; i < kNumChanged; ++i) {
    std::string input = inputs[random() % inputs.size()];
    for (auto n = 1 + random() % 5; n > 0; --n) {
      const std::size_t at = random() % (input.size() + 1);
      input.insert(at, 1, static_cast<char>(random() % 3 == 0 ? 0x80 + random() % 8 : random()));
    }
    out["changed " + std::to_string(i)] = ids_of_fuzz_input(input);
  }
  return out;
}

const TestJson kTool = {
    {"name", "f"}, {"parameters", {{"type", "object"}}}, {"input_schema", {{"type", "object"}}}};
const TestJson kTurn = {{{"role", "user"}, {"content", "hello"}}};

// What is asked of one API, and what of its replies does not depend on the way they are sent.
struct Form {
  const char* path;
  TestJson body;
  TestJson (*of_whole)(const TestJson& reply);
  TestJson (*of_events)(const std::vector<TestJson>& events);
  const char* last = "\n\n";  // bytes of a stream
};

TestJson text_of(const std::vector<TestJson>& events) {
  TestJson out = {{"text", ""}, {"finish", nullptr}};
  for (const TestJson& event : events) {
    const TestJson& choice = event["choices"][0];
    out["text"] = out["text"].get<std::string>() + choice["text"].get<std::string>();
    out["finish"] = choice["finish_reason"];
  }
  return out;
}

const Form kForms[] = {
    {"/v1/chat/completions",
     {{"messages", kTurn}, {"tools", {{{"type", "function"}, {"function", kTool}}}}},
     [](const TestJson& reply) { return plain(reply); },
     [](const std::vector<TestJson>& events) { return joined(events); },
     "data: [DONE]\n\n"},
    {"/v1/completions",
     {{"prompt", "a"}, {"max_tokens", 250}},
     [](const TestJson& reply) {
       const TestJson& choice = reply["choices"][0];
       return TestJson{{"text", choice["text"]}, {"finish", choice["finish_reason"]}};
     },
     [](const std::vector<TestJson>& events) { return text_of(events); },
     "data: [DONE]\n\n"},
    {"/v1/messages",
     {{"messages", kTurn},
      {"max_tokens", 250},
      {"tools", {kTool}},
      {"thinking", {{"type", "enabled"}, {"budget_tokens", 1024}}}},
     [](const TestJson& reply) { return without_call_ids(reply); },
     [](const std::vector<TestJson>& events) { return without_call_ids(assembled(events)); }},
    {"/v1/responses",
     {{"input", "hello"}, {"tools", {{{"type", "function"}, {"name", "f"}}}}},
     [](const TestJson& reply) { return plain_output(reply); },
     [](const std::vector<TestJson>& events) {
       EXPECT_EQ(events.back()["response"]["output"], items_of(events));
       return plain_output(events.back()["response"]);
     }},
};

// Everything is read by a strict parser of JSON, so a reply is valid UTF-8 too.
TEST(TokenStreams, EveryStreamOfTheCorpusIsAValidReplyAndStreamedAsItIsWhole) {
  const std::map<std::string, Ids> all = streams();
  ASSERT_GE(all.size(), 70U);
  for (const Form& form : kForms) {
    for (const auto& [name, ids] : all) {
      SCOPED_TRACE(std::string(form.path) + " " + name);
      Api api;
      const Reply whole = reply_in_steps(api, form.path, form.body, ids, kAllAtOnce);
      ASSERT_EQ(whole.status, 200) << whole.body;
      const TestJson want = form.of_whole(whole.json());
      TestJson body = form.body;
      body["stream"] = true;
      for (const std::size_t per_step : kTokensPerStep) {
        const Reply stream = reply_in_steps(api, form.path, body, ids, per_step);
        ASSERT_EQ(stream.status, 200);
        ASSERT_TRUE(stream.has_ended);
        EXPECT_THAT(stream.sent(), testing::EndsWith(form.last));
        EXPECT_EQ(form.of_events(stream.events()), want) << per_step << " tokens a step";
      }
    }
  }
}

}  // namespace
}  // namespace nibble::server
