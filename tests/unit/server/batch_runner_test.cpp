// Lines through the API over scripted tokens.
#include "server/batch_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "unit/server/scripted_api.h"

namespace nibble::server {
namespace {

struct Files {
  Files() {
    std::string pattern = std::filesystem::temp_directory_path() / "nibble_batch_XXXXXX";
    folder = mkdtemp(pattern.data());
  }
  ~Files() { std::filesystem::remove_all(folder); }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;

  BatchInput input(const std::vector<TestJson>& lines) const {
    std::ofstream file(folder + "/in");
    for (const TestJson& line : lines) {
      file << line.dump() << "\n";
    }
    file.close();
    return *BatchInput::open(folder + "/in");
  }
  BatchOutput output() const { return *BatchOutput::open(folder + "/out"); }
  std::map<std::string, TestJson> records() const {
    std::map<std::string, TestJson> out;
    std::ifstream file(folder + "/out");
    for (std::string line; std::getline(file, line);) {
      const TestJson json = TestJson::parse(line);
      const std::string id = json["custom_id"].is_null() ? "line " + json["error"]["line"].dump()
                                                         : json["custom_id"].get<std::string>();
      EXPECT_TRUE(out.emplace(id, json).second) << "twice: " << id;
    }
    return out;
  }

  std::string folder;
};

TestJson line_of(const std::string& id, const std::string& url, const TestJson& body) {
  return {{"custom_id", id}, {"method", "POST"}, {"url", url}, {"body", body}};
}

TestJson chat_line(const std::string& id) {
  return line_of(id, "/v1/chat/completions",
                 {{"messages", {{{"role", "user"}, {"content", "hi"}}}}});
}

TEST(BatchRunner, EveryEndpointAnswersAndRefusesThroughTheApi) {
  const Files files;
  Api api;
  api.host->script = "<|channel|>final<|message|>one two<|return|>";
  BatchInput input = files.input(
      {chat_line("chat"), line_of("text", "/v1/completions", {{"prompt", "a"}, {"n", 2}}),
       line_of("resp", "/v1/responses", {{"input", "a"}}),
       line_of("mess", "/v1/messages", chat_line("")["body"]),
       line_of("wrong", "/v1/completions", {{"prompt", "a"}, {"temperature", -1}}),
       line_of("other", "/v1/completions", {{"prompt", "a"}, {"model", "gpt-9"}}),
       line_of("none", "/v1/embeddings", {{"input", "a"}})});
  BatchOutput output = files.output();
  BatchRunner runner(api.context, output, 3);
  BatchProgress last;
  ASSERT_TRUE(
      runner.run(input, {.total = 7}, [&last](const BatchProgress& progress) { last = progress; })
          .ok());
  EXPECT_EQ(last.done, 7);
  EXPECT_EQ(last.failed, 4) << "Anthropic's form wants max_tokens";
  auto records = files.records();
  EXPECT_EQ(records["chat"]["response"]["body"]["choices"][0]["message"]["content"], "one two");
  EXPECT_THAT(records["chat"]["response"]["request_id"].get<std::string>(),
              testing::StartsWith("req-"));
  EXPECT_EQ(records["text"]["response"]["body"]["choices"].size(), 2U);
  EXPECT_EQ(records["resp"]["response"]["body"]["status"], "completed");
  EXPECT_EQ(records["mess"]["response"]["body"]["type"], "error");
  EXPECT_EQ(records["wrong"]["response"]["status_code"], 400);
  EXPECT_EQ(records["wrong"]["response"]["body"]["error"]["param"], "temperature");
  EXPECT_EQ(records["other"]["response"]["status_code"], 404);
  EXPECT_TRUE(records["none"]["response"].is_null());
  EXPECT_EQ(records["none"]["error"]["line"], 7);
}

TEST(BatchRunner, KeepsWhatIsDone) {
  const Files files;
  for (int round = 0; round < 2; ++round) {
    Api api;
    api.host->script = "one";
    BatchInput input = files.input({chat_line("a"), chat_line("b"), TestJson(5), chat_line("a")});
    BatchOutput output = files.output();
    BatchRunner runner(api.context, output, 2);
    ASSERT_TRUE(runner.run(input, {.total = 4}, [](const BatchProgress&) {}).ok());
    EXPECT_EQ(api.host->requests.size(), round == 0 ? 2U : 0U);
    EXPECT_EQ(files.records().size(), 4U);
  }
}

// The model answers in its own thread, in its own order; no more than so many are with it.
TEST(BatchRunner, ManyAreInFlightAndNoMore) {
  const Files files;
  Api api;
  api.host->waits = true;
  std::vector<TestJson> lines(8);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    lines[i] = line_of(std::to_string(i), "/v1/completions", {{"prompt", "a"}});
  }
  BatchInput input = files.input(lines);
  BatchOutput output = files.output();
  BatchRunner runner(api.context, output, 4);
  std::size_t most = 0;
  const auto answer = [&](const BatchProgress&) {
    most = std::max(most, api.host->waiting.size());
    auto waiting = std::exchange(api.host->waiting, {});
    while (!waiting.empty()) {  // the last first
      waiting.back().on_end(Response{.content = "x"});
      waiting.pop_back();
    }
  };
  ASSERT_TRUE(runner.run(input, {.total = 8}, answer).ok());
  EXPECT_EQ(most, 4U);
  EXPECT_EQ(files.records().size(), 8U);
}

TEST(BatchRunner, AFailedModelEndsTheRunAndIsNoAnswer) {
  const Files files;
  Api api;
  api.host->waits = true;
  BatchInput input = files.input({chat_line("a"), chat_line("b"), chat_line("c")});
  BatchOutput output = files.output();
  {
    BatchRunner runner(api.context, output, 2);
    const Status ended = runner.run(input, {.total = 3}, [&api](const BatchProgress&) {
      api.host->state.state = ServiceState::kFailed;
      api.host->state.failure = {Code::kDevice, "the device is lost"};
      if (api.host->waiting.size() == 2) {
        api.host->waiting.front().on_end(api.host->state.failure);
        api.host->waiting.erase(api.host->waiting.begin());
      }
    });
    EXPECT_EQ(ended.code(), Code::kDevice);
    EXPECT_EQ(api.host->cancelled, (std::vector<RequestId>{1, 2})) << "the other one too";
    EXPECT_TRUE(files.records().empty());
    for (const RequestSink& sink : api.host->waiting) {  // the model may still say so
      sink.on_end(Response{.finish_reason = FinishReason::kCancelled});
    }
    api.host->waiting.clear();
  }
  EXPECT_EQ(api.context.num_open, 0) << "nothing is held";
}

}  // namespace
}  // namespace nibble::server
