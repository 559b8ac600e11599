// The files of a batch: what is read, what is written, what an earlier run left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "server/batch_input.h"
#include "server/batch_output.h"

namespace nibble::server {
namespace {

using testing::HasSubstr;
using TestJson = nlohmann::ordered_json;

class BatchFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = std::filesystem::temp_directory_path() / "nibble_batch_XXXXXX";
    folder_ = mkdtemp(pattern.data());
    path_ = folder_ + "/file";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }
  std::string content() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string folder_;
  std::string path_;
};

std::string request_line(const std::string& id, const TestJson& body = {{"prompt", "a"}}) {
  return TestJson{{"custom_id", id}, {"method", "POST"}, {"url", "/v1/completions"}, {"body", body}}
      .dump();
}

TEST(BatchLine, IsARequestOrSaysWhatIsWrong) {
  const BatchLine good = read_batch_line(request_line("a", {{"prompt", "x"}, {"n", 2}}), 3);
  EXPECT_FALSE(good.fault.has_value());
  EXPECT_EQ(good.custom_id, "a");
  EXPECT_EQ(good.request.method, "POST");
  EXPECT_EQ(good.request.path, "/v1/completions");
  EXPECT_EQ(TestJson::parse(good.request.body), (TestJson{{"prompt", "x"}, {"n", 2}}));
  const std::pair<const char*, const char*> wrong[] = {
      {"{", "no JSON"},
      {"[]", "want a JSON object"},
      {R"({"method": "POST", "url": "/v1/completions", "body": {}})", "custom_id: want"},
      {R"({"custom_id": 5, "method": "POST", "url": "/v1/completions", "body": {}})", "custom_id"},
      {R"({"custom_id": "a", "method": "GET", "url": "/v1/completions", "body": {}})", "method"},
      {R"({"custom_id": "a", "url": "/v1/completions", "body": {}})", "method: want POST"},
      {R"({"custom_id": "a", "method": "POST", "url": "/v1/embeddings", "body": {}})", "url: want"},
      {R"({"custom_id": "a", "method": "POST", "body": {}})", "url: want"},
      {R"({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": 1})",
       "body: want"},
      {R"({"custom_id": "a", "method": "POST", "url": "/v1/completions"})", "body: want"},
      {R"({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"stream": true}})",
       "body.stream: want false"},
  };
  for (const auto& [text, why] : wrong) {
    const BatchLine line = read_batch_line(text, 7);
    ASSERT_TRUE(line.fault.has_value()) << text;
    const TestJson written = TestJson::parse(refused_line(line));
    EXPECT_TRUE(written["response"].is_null());
    EXPECT_EQ(written["error"]["code"], "invalid_line");
    EXPECT_EQ(written["error"]["line"], 7);
    const std::string message = written["error"]["message"];
    EXPECT_THAT(message, testing::StartsWith("line 7: "));
    EXPECT_THAT(message, HasSubstr(why)) << text;
  }
}

TEST(BatchLine, AnswersAreWrittenAsOpenAiDoesAndReadBack) {
  const BatchLine line = read_batch_line(request_line("a"), 1);
  for (const int status : {200, 400, 500}) {
    const std::string text =
        answered_line(line, "req-1", {.status = status, .body = R"({"id":"cmpl-1"})"});
    EXPECT_EQ(text.back(), '\n');
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
    const TestJson json = TestJson::parse(text);
    EXPECT_EQ(json["custom_id"], "a");
    EXPECT_EQ(json["response"]["status_code"], status);
    EXPECT_EQ(json["response"]["request_id"], "req-1");
    EXPECT_EQ(json["response"]["body"]["id"], "cmpl-1");
    EXPECT_TRUE(json["error"].is_null());
    const auto record = read_batch_record(text);
    ASSERT_TRUE(record.has_value());
    EXPECT_EQ(record->custom_id, "a");
    EXPECT_EQ(record->is_failure, status != 200);
  }
  for (const char* foreign :
       {"", "5", "{}", R"({"id": "x", "custom_id": "a", "response": {"status_code": 200}})",
        R"({"id": "batch_req_1", "custom_id": "a"})",
        R"({"id": "batch_req_1", "response": {"status_code": 200}})"}) {
    EXPECT_FALSE(read_batch_record(foreign).has_value()) << foreign;
  }
}

TEST_F(BatchFile, InputSkipsEmptyLinesAndRefusesRepeatedIds) {
  write("\n" + request_line("a") + "\r\n  \n" + request_line("b") + "\n" + request_line("a"));
  Result<BatchInput> input = BatchInput::open(path_);
  ASSERT_TRUE(input.has_value());
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(input->next()->number, 2);
    EXPECT_EQ(input->next()->custom_id, "b");
    const auto again = input->next();
    EXPECT_EQ(again->number, 5);
    EXPECT_EQ(again->custom_id, "");
    EXPECT_THAT(again->fault->message, HasSubstr("'a' again"));
    EXPECT_FALSE(input->next().has_value());
    input->rewind();
  }
  EXPECT_EQ(BatchInput::open(path_ + ".none").error().code(), Code::kNotFound);
  EXPECT_EQ(BatchInput::open(folder_).error().code(), Code::kInvalidArgument);
}

// At every byte: what is whole stays, what is cut goes.
TEST_F(BatchFile, OutputCutAnywhereIsContinued) {
  const BatchLine a = read_batch_line(request_line("a"), 1);
  const BatchLine b = read_batch_line(request_line("b"), 2);
  const BatchLine bad = read_batch_line("{", 3);
  const std::string first = answered_line(a, "req-1", {.body = "{}"});
  const std::string second = refused_line(bad);
  const std::string third = answered_line(b, "req-2", {.status = 400, .body = "{}"});
  const std::string whole = first + second + third;
  for (std::size_t bytes = 0; bytes <= whole.size(); ++bytes) {
    write(whole.substr(0, bytes));
    Result<BatchOutput> output = BatchOutput::open(path_);
    ASSERT_TRUE(output.has_value()) << bytes << output.error().message();
    EXPECT_EQ(output->has(a), bytes >= first.size()) << bytes;
    EXPECT_EQ(output->has(bad), bytes >= first.size() + second.size()) << bytes;
    EXPECT_EQ(output->has(b), bytes >= whole.size()) << bytes;
    const std::string kept = bytes >= whole.size()                   ? whole
                             : bytes >= first.size() + second.size() ? first + second
                             : bytes >= first.size()                 ? first
                                                                     : "";
    EXPECT_EQ(content(), kept) << bytes;
    ASSERT_TRUE(output->append(third).ok());
    EXPECT_EQ(content(), kept + third) << bytes;
  }
  Result<BatchOutput> output = BatchOutput::open(path_);
  EXPECT_EQ(output->num_lines(), 4);
  EXPECT_EQ(output->num_failures(), 3);
}

TEST_F(BatchFile, OutputThatIsSomethingElseStaysAsItIs) {
  for (const std::string& foreign :
       {std::string("a letter"), std::string("a letter\n"), request_line("a") + "\n",
        refused_line(read_batch_line("{", 1)) + "{\"id\":\"other"}) {
    write(foreign);
    const Result<BatchOutput> output = BatchOutput::open(path_);
    EXPECT_EQ(output.error().code(), Code::kInvalidArgument) << foreign;
    EXPECT_THAT(output.error().message(), HasSubstr("line"));
    EXPECT_EQ(content(), foreign);
  }
}

TEST_F(BatchFile, OneRunAtATimeWrites) {
  Result<BatchOutput> first = BatchOutput::open(path_);
  ASSERT_TRUE(first.has_value());
  EXPECT_THAT(BatchOutput::open(path_).error().message(), HasSubstr("another run"));
}

TEST_F(BatchFile, OutputIsAFile) {
  EXPECT_EQ(BatchOutput::open("/dev/zero").error().code(), Code::kInvalidArgument);
  EXPECT_THAT(BatchOutput::open(folder_).error().message(), HasSubstr("directory"));
}

// The system cuts the write; the next run finds the line cut.
TEST_F(BatchFile, AFullDiskIsSaidAndRepaired) {
  const BatchLine line = read_batch_line(request_line("a"), 1);
  const std::string text = answered_line(line, "req-1", {.body = "{}"});
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{text.size() + 10, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  {
    Result<BatchOutput> output = BatchOutput::open(path_);
    EXPECT_TRUE(output->append(text).ok());
    EXPECT_EQ(output->append(text).code(), Code::kExhausted);
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(content(), text + text.substr(0, 10));
  ASSERT_TRUE(BatchOutput::open(path_).has_value());
  EXPECT_EQ(content(), text);
}

}  // namespace
}  // namespace nibble::server
