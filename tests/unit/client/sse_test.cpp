#include "client/sse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace nibble::client {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> events_of(const std::vector<std::string>& pieces) {
  SseParser parser;
  std::vector<std::string> events;
  const auto keep = [&](std::string_view data) { events.emplace_back(data); };
  for (const std::string& piece : pieces) {
    parser.feed(piece, keep);
  }
  parser.finish(keep);
  return events;
}

TEST(SseParser, ReadsTheSameAtEveryCut) {
  const std::string stream =
      "\xEF\xBB\xBF"
      "data: one\n\n: a comment\r\n\r\nevent: x\rdata:two\r\r\ndata\ndata:  three\nid: 4\n\n"
      "data: \xC3\xA9\n\n";
  const std::vector<std::string> want = {"one", "two", "\n three", "\xC3\xA9"};
  ASSERT_EQ(events_of({stream}), want);
  std::vector<std::string> bytes;
  for (std::size_t i = 0; i < stream.size(); ++i) {
    EXPECT_EQ(events_of({stream.substr(0, i), stream.substr(i)}), want) << "cut at " << i;
    bytes.push_back(stream.substr(i, 1));
  }
  EXPECT_EQ(events_of(bytes), want);
}

TEST(SseParser, AnEventCountsWhenItsEmptyLineHasCome) {
  SseParser parser;
  std::vector<std::string> events;
  const auto keep = [&](std::string_view data) { events.emplace_back(data); };
  parser.feed("data: 1\n", keep);
  EXPECT_THAT(events, IsEmpty());
  parser.feed("\n", keep);
  EXPECT_THAT(events, ElementsAre("1"));
}

TEST(SseParser, TheEndOfTheStreamEndsTheLastEvent) {
  EXPECT_THAT(events_of({"data: [DONE]"}), ElementsAre("[DONE]"));
  EXPECT_THAT(events_of({"data: [DONE]\n"}), ElementsAre("[DONE]"));
  EXPECT_THAT(events_of({""}), IsEmpty());
}

TEST(SseParser, OtherFieldsAreNoData) {
  EXPECT_THAT(events_of({"database: 1\n\nretry: 5\n\n{\"data\": 1}\n\ndata:\n\n"}),
              ElementsAre(""));
}

}  // namespace
}  // namespace nibble::client
