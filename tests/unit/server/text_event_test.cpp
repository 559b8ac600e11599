#include "server/text_event.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "server/generation_job.h"

namespace nibble::server {
namespace {

std::string written(const Json& pattern, std::string_view text) {
  std::string out;
  TextEvent(pattern).append(text, out);
  return out;
}

Json event_of(const std::string& text) {
  return {{"id", "x\""}, {"delta", {{"a", text}, {"b", text}}}, {"end", nullptr}};
}

TEST(TextEvent, EqualsTheEventThatIsWrittenAsAWhole) {
  const Json pattern = event_of(TextEvent::kText);
  std::mt19937 random(3);
  std::vector<std::string> texts = {
      "",         " word",       "caf\xC3\xA9", "\"\\/", "a\nb\tc", "\x7F", "\xF0\x9F\x98\xBA",
      "\xF0\x9F", "\xED\xA0\x80"};
  for (int byte = 0; byte < 256; ++byte) {
    texts.emplace_back(1, static_cast<char>(byte));
    texts.push_back("a" + texts.back() + "b");
  }
  for (int i = 0; i < 2000; ++i) {
    std::string text(random() % 6, ' ');
    for (char& c : text) {
      c = static_cast<char>(random());
    }
    texts.push_back(text);
  }
  for (const std::string& text : texts) {
    std::string want;
    append_event(event_of(text), want);
    EXPECT_EQ(written(pattern, text), want);
  }
}

TEST(TextEvent, TakesTheTextAtItsBorders) {
  std::string want;
  append_event(Json("hi"), want);
  EXPECT_EQ(written(Json(TextEvent::kText), "hi"), want);
  EXPECT_FALSE(TextEvent().is_made());
  EXPECT_TRUE(TextEvent(Json("fixed")).is_made());
}

}  // namespace
}  // namespace nibble::server
