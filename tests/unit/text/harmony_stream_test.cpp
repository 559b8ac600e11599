// Properties of the harmony parser over recorded and random token streams.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "harmony_conversations.h"
#include "support/harmony_script.h"
#include "text/harmony_parser.h"

namespace nibble::text {
namespace {

using Json = nlohmann::ordered_json;

std::string bytes_of_hex(const std::string& hex) {
  std::string out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    out += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return out;
}

std::string string_or_empty(const Json& value) {
  return value.is_null() ? "" : value.get<std::string>();
}

// What the reference parser read, as our parser would tell it.
std::string describe_reference(const Json& messages) {
  std::vector<ParsedMessage> out;
  for (const Json& json : messages) {
    ParsedMessage message;
    const std::string channel = string_or_empty(json.at("channel"));
    message.recipient = string_or_empty(json.at("recipient"));
    message.channel = channel == "analysis"     ? Channel::kAnalysis
                      : channel == "commentary" ? Channel::kCommentary
                                                : Channel::kFinal;
    message.kind = !message.recipient.empty()              ? PartKind::kToolCall
                   : message.channel == Channel::kAnalysis ? PartKind::kReasoning
                                                           : PartKind::kContent;
    message.content_type = string_or_empty(json.at("content_type"));
    if (const std::string mark = "<|constrain|>"; message.content_type.starts_with(mark)) {
      message.content_type.erase(0, mark.size());
    }
    message.text = json.at("text");
    out.push_back(std::move(message));
  }
  return describe(out);
}

TEST(HarmonyStream, AgreesWithReferenceParserOnWellFormedStreams) {
  const Json golden = read_golden("harmony_parse.json");
  HarmonyScript script;
  for (const Json& test : golden.at("cases")) {
    std::vector<std::int32_t> ids;
    for (std::int32_t id : test.at("ids")) {
      ids.push_back(script.id_of(bytes_of_hex(golden.at("tokens").at(std::to_string(id)))));
    }
    HarmonyParser parser = script.parser();
    EXPECT_EQ(parse_all(parser, ids), describe_reference(test.at("messages"))) << test.at("name");
  }
  EXPECT_GE(golden.at("cases").size(), 150U);
}

// Five words: whatever header grammar takes from the front, the last three stay.
const std::string kWords = " many more words here now";
const std::string kKept = "words here now";

const std::vector<std::string>& alphabet() {
  static const std::vector<std::string> kTokens = {
      "<|start|>",     "<|end|>",     "<|message|>", "<|channel|>",
      "<|constrain|>", "<|return|>",  "<|call|>",    "<|start|>",
      "<|end|>",       "<|message|>", "<|channel|>", "<|endoftext|>",
      "assistant",     "user",        " to=",        "functions.f",
      "functions.",    " json",       "analysis",    "commentary",
      "final",         " ",           "?!",          "7",
      "\xF0\x9F",      "\x98\x80",    "\xC3",        "\xFF",
      "\xFE",          "{\"a\":1}",   "\n",          "<|channel",
      "python",        kWords,        kWords,        "é"};
  return kTokens;
}

struct RandomStream {
  std::vector<std::string> tokens;
  std::size_t num_words = 0;
};

RandomStream random_stream(std::mt19937& random) {
  RandomStream stream;
  const std::size_t length = random() % 24;
  while (stream.tokens.size() < length) {
    stream.tokens.push_back(alphabet()[random() % alphabet().size()]);
    stream.num_words += stream.tokens.back() == kWords ? 1 : 0;
  }
  return stream;
}

// Text between MESSAGE and the token that ends it, by the plainest reading of the format.
std::vector<std::string> bodies_of(const std::vector<std::string>& tokens) {
  std::vector<std::string> bodies;
  bool is_open = false;
  Utf8Stream utf8;
  const auto end_body = [&] {
    if (is_open) {
      utf8.finish(bodies.back());
    }
    is_open = false;
  };
  for (const std::string& token : tokens) {
    if (token == "<|message|>") {
      if (!is_open) {
        bodies.emplace_back();
      }
      is_open = true;
    } else if (token.starts_with("<|") && token.ends_with("|>")) {
      if (token != "<|constrain|>") {
        end_body();
      }
    } else if (is_open) {
      utf8.push(token, bodies.back());
    }
  }
  end_body();
  return bodies;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++n;
  }
  return n;
}

bool is_subsequence(const std::vector<std::string>& part, const std::vector<ParsedMessage>& whole) {
  std::size_t next = 0;
  for (const ParsedMessage& message : whole) {
    next += next < part.size() && part[next] == message.text ? 1 : 0;
  }
  return next == part.size();
}

class HarmonyRandom : public testing::Test {
 protected:
  std::vector<ParserEvent> push_all(HarmonyParser& parser, const std::vector<std::string>& tokens) {
    std::vector<ParserEvent> events;
    for (const std::string& token : tokens) {
      parser.push(script_.id_of(token), events);
    }
    return events;
  }

  HarmonyScript script_;
};

TEST_F(HarmonyRandom, LosesNoTextAndKeepsTheEventContract) {
  std::mt19937 random(1);
  HarmonyParser pooled = script_.parser();
  for (int i = 0; i < 100000; ++i) {
    const RandomStream stream = random_stream(random);
    std::vector<ParserEvent> events = push_all(pooled, stream.tokens);
    pooled.finish(events);
    std::string problem;
    const std::vector<ParsedMessage> messages = join_events(events, &problem);
    std::string all;
    for (const ParsedMessage& message : messages) {
      all += message.text + "\n";
    }
    const bool ok = problem.empty() && count(all, kKept) == stream.num_words &&
                    is_subsequence(bodies_of(stream.tokens), messages);
    ASSERT_TRUE(ok) << "stream " << i << ": " << testing::PrintToString(stream.tokens) << "\n"
                    << problem << "\n"
                    << describe(messages);
  }
}

TEST_F(HarmonyRandom, GivesTheSameForAnySplitIntoTokens) {
  std::mt19937 random(2);
  for (int i = 0; i < 5000; ++i) {
    std::string text;
    for (const std::string& token : random_stream(random).tokens) {
      // "<|channel" in front of "|>" would spell a control token: not the same stream.
      text += token == "<|channel" ? "<|chan" : token;
    }
    HarmonyParser parser = script_.parser();
    const std::string want = parse_all(parser, script_.ids_of(text, 1000));
    for (std::size_t chunk : {1, 2, 7}) {
      ASSERT_EQ(parse_all(parser, script_.ids_of(text, chunk)), want)
          << testing::PrintToString(text);
    }
  }
}

TEST_F(HarmonyRandom, ForgetsAbortedStreams) {
  std::mt19937 random(3);
  HarmonyParser pooled = script_.parser();
  for (int i = 0; i < 5000; ++i) {
    push_all(pooled, random_stream(random).tokens);
    pooled.reset();
    const std::vector<std::string> tokens = random_stream(random).tokens;
    std::vector<ParserEvent> events = push_all(pooled, tokens);
    pooled.finish(events);
    HarmonyParser fresh = script_.parser();
    std::vector<ParserEvent> want = push_all(fresh, tokens);
    fresh.finish(want);
    std::string problem;
    ASSERT_EQ(describe(join_events(events, &problem)), describe(join_events(want, &problem)))
        << testing::PrintToString(tokens);
  }
}

}  // namespace
}  // namespace nibble::text
