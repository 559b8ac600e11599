#include "client/stream_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "client/workload.h"

namespace nibble::client {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

struct Timed {
  int at_ms;
  std::string bytes;
};

std::string event(const std::string& json) { return "data: " + json + "\n\n"; }
std::string chat(const std::string& delta, const std::string& end = "null") {
  return event(R"({"choices":[{"index":0,"delta":)" + delta + R"(,"finish_reason":)" + end + "}]}");
}
const std::string kDone = event("[DONE]");

struct Read {
  RequestRecord record;
  std::int32_t counted = 0;
  std::int32_t num_chunks = 0;
};

Read read(const std::vector<Timed>& pieces, int status = 200, const Status& end = {}) {
  Read result;
  result.record.input_len = 11;
  StreamReader reader(result.record);
  const Clock::time_point start{std::chrono::seconds(5)};
  reader.start(start);
  reader.set_status(status);
  for (const Timed& piece : pieces) {
    reader.read(piece.bytes, start + milliseconds(piece.at_ms));
  }
  reader.end(end);
  result.counted = reader.counted_output();
  result.num_chunks = reader.num_token_chunks();
  return result;
}

TEST(StreamReader, TimesTheTokensOfAChat) {
  const Read read_back = read({{100, chat(R"({"role":"assistant","content":""})")},
                               {200, chat(R"({"reasoning_content":"Hm","reasoning":"Hm"})")},
                               {250, chat(R"({"content":"A"})") + chat(R"({"content":"B"})")},
                               {400, chat(R"({"tool_calls":[{"index":0}]})")},
                               {500, chat("{}", "\"stop\"")},
                               {600, event(R"({"choices":[],"usage":{"prompt_tokens":70,)"
                                           R"("completion_tokens":5}})") +
                                         kDone}});
  EXPECT_TRUE(read_back.record.is_success) << read_back.record.error;
  EXPECT_EQ(read_back.record.text, "HmAB");
  EXPECT_DOUBLE_EQ(read_back.record.start, 5.0);
  EXPECT_DOUBLE_EQ(read_back.record.ttft, 0.2);
  EXPECT_THAT(read_back.record.itls,
              ElementsAre(testing::DoubleNear(0.05, 1e-9), 0.0, testing::DoubleNear(0.15, 1e-9)));
  EXPECT_DOUBLE_EQ(read_back.record.latency, 0.5);
  EXPECT_EQ(read_back.counted, 5);
  EXPECT_EQ(read_back.num_chunks, 4);
  EXPECT_EQ(read_back.record.input_len, 70);
}

TEST(StreamReader, ATokenMayHaveNoText) {
  const Read read_back =
      read({{10, event(R"({"choices":[{"text":"","finish_reason":null}]})")},
            {20, event(R"({"choices":[{"text":"x","finish_reason":"length"}]})")}});
  EXPECT_TRUE(read_back.record.is_success) << read_back.record.error;
  EXPECT_EQ(read_back.num_chunks, 2);
  EXPECT_EQ(read_back.counted, -1);
  EXPECT_EQ(read_back.record.input_len, 11);
  EXPECT_DOUBLE_EQ(read_back.record.ttft, 0.01);
}

TEST(StreamReader, SaysWhyARequestFailed) {
  const std::string token = chat(R"({"content":"A"})");
  const struct {
    std::vector<Timed> pieces;
    int status;
    Status end;
    const char* error;
  } cases[] = {
      {{{1, R"({"error":{"message":"too "})"}},
       429,
       {},
       "HTTP 429: {\"error\":{\"message\":\"too \"}"},
      {{{1, R"({"error":{"message")"}, {2, R"(:"too many"}})"}}, 429, {}, "HTTP 429: too many"},
      {{{1, "<html>gone</html>"}}, 502, {}, "HTTP 502: <html>gone</html>"},
      {{{1, token}}, 200, {}, "the stream ended without [DONE] and without a finish reason"},
      {{{1, token}}, 200, {Code::kInternal, "broke off"}, "broke off"},
      {{}, 0, {Code::kInternal, "refused"}, "refused"},
      {{{1, kDone}}, 200, {}, "want a stream of tokens, found 'data: [DONE]"},
      {{{1, R"({"choices":[{"message":{"content":"whole"}}]})"}},
       200,
       {},
       "want a stream of tokens"},
      {{{1, token + event(R"({"error":{"message":"out of pages"}})") + kDone}},
       200,
       {},
       "out of pages"},
      {{{1, token + event("{oops") + kDone}},
       200,
       {},
       "want a JSON object in each event, found '{oops'"},
  };
  for (const auto& one : cases) {
    const Read read_back = read(one.pieces, one.status, one.end);
    EXPECT_FALSE(read_back.record.is_success) << one.error;
    EXPECT_THAT(read_back.record.error, HasSubstr(one.error));
  }
}

TEST(FirstModel, IsTheFirstThatIsListed) {
  EXPECT_EQ(first_model(R"({"data":[{"id":"a"},{"id":"b"}]})").value(), "a");
  for (const char* json : {R"({"data":[]})", "[]", "", R"({"data":[{"id":1}]})"}) {
    EXPECT_EQ(first_model(json).error().code(), Code::kCorrupt) << json;
  }
}

TEST(RequestBody, AsksAsTheEndpointWants) {
  const Prompt prompt{.text = " a b", .ids = {7, 8}, .num_tokens = 2, .output_len = 9};
  const auto parse = [](const std::string& text) { return nlohmann::json::parse(text); };
  EXPECT_EQ(parse(request_body({.model = "m"}, prompt)),
            parse(R"({"model":"m","prompt":[7,8],"max_tokens":9,"stream":true,
                      "stream_options":{"include_usage":true}})"));
  EXPECT_EQ(parse(request_body({.model = "m",
                                .is_chat = true,
                                .ignore_eos = true,
                                .extra_body = R"({"temperature":0,"max_completion_tokens":1})"},
                               prompt)),
            parse(R"({"model":"m","messages":[{"role":"user","content":" a b"}],
                      "max_completion_tokens":1,"stream":true,"ignore_eos":true,
                      "stream_options":{"include_usage":true},"temperature":0})"));
  EXPECT_TRUE(check_extra_body("").ok());
  EXPECT_TRUE(check_extra_body("{}").ok());
  EXPECT_EQ(check_extra_body("[1]").code(), Code::kInvalidArgument);
  EXPECT_EQ(check_extra_body("{").code(), Code::kInvalidArgument);
}

TEST(BaseUrl, NamesAServer) {
  const auto parts = [](const char* url) {
    const auto address = parse_base_url(url);
    return address ? address->host + "|" + address->port + "|" + address->prefix
                   : address.error().message();
  };
  EXPECT_EQ(parts("http://127.0.0.1:8000"), "127.0.0.1|8000|");
  EXPECT_EQ(parts("http://box"), "box|80|");
  EXPECT_EQ(parts("http://[::1]:81/a/b/"), "::1|81|/a/b");
  for (const char* wrong :
       {"", "127.0.0.1:8000", "http://", "http://:80", "http://a:", "http://a:b", "http://a:65536",
        "http://[::1", "http://[::1]x:1", "ftp://a"}) {
    EXPECT_THAT(parts(wrong), HasSubstr("want http://HOST[:PORT], found")) << wrong;
  }
  EXPECT_EQ(parse_base_url("https://a").error().code(), Code::kUnsupported);
}

}  // namespace
}  // namespace nibble::client
