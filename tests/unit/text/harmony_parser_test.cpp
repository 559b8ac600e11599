#include "text/harmony_parser.h"

#include <gtest/gtest.h>

#include "support/harmony_script.h"

namespace nibble::text {
namespace {

struct Case {
  const char* name;
  const char* stream;  // after START "assistant"
  const char* want;    // describe()
};

std::string parse(std::string_view stream, std::size_t chunk = 5) {
  HarmonyScript script;
  const std::vector<std::int32_t> ids = script.ids_of(stream, chunk);
  HarmonyParser parser = script.parser();
  return parse_all(parser, ids);
}

void expect_all(const std::vector<Case>& cases) {
  for (const Case& test : cases) {
    for (std::size_t chunk : {1, 2, 10, 1000}) {
      EXPECT_EQ(parse(test.stream, chunk), test.want) << test.name << ", chunk " << chunk;
    }
  }
}

const char* const kNext = "<|start|>assistant<|channel|>final<|message|>42<|return|>";

// Each header, with a body and a well-formed message after it; `want` is the first message.
void expect_headers(const std::vector<Case>& cases) {
  for (const Case& test : cases) {
    const std::string stream = std::string(test.stream) + "<|message|>body<|end|>" + kNext;
    for (std::size_t chunk : {1, 3, 1000}) {
      EXPECT_EQ(parse(stream, chunk), std::string(test.want) + "content final: 42\n")
          << test.name << ", chunk " << chunk;
    }
  }
}

TEST(HarmonyParser, ReadsWellFormedStreams) {
  expect_all({
      {"analysis and final",
       "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes."
       "<|return|>",
       "reasoning analysis: Hm.\ncontent final: Yes.\n"},
      {"ends with END",
       "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes."
       "<|end|>",
       "reasoning analysis: Hm.\ncontent final: Yes.\n"},
      {"call, recipient first",
       " to=functions.f<|channel|>commentary <|constrain|>json<|message|>{\"a\":\"b\"}<|call|>",
       "call commentary to=functions.f type=json: {\"a\":\"b\"}\n"},
      {"call, recipient last",
       "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\":\"b\"}<|call|>",
       "call commentary to=functions.f type=json: {\"a\":\"b\"}\n"},
      {"preamble", "<|channel|>commentary<|message|>Let me look.<|end|>",
       "content commentary: Let me look.\n"},
      {"python", "<|channel|>analysis to=python code<|message|>1+1<|call|>",
       "call analysis to=python type=code: 1+1\n"},
      {"end of text stops", "<|channel|>final<|message|>Yes.<|endoftext|>",
       "content final: Yes.\n"},
      {"nothing", "", ""},
  });
}

TEST(HarmonyParser, KeepsReplyWithoutMarkersAsFinalText) {
  const std::string after =
      "<|end|><|start|>assistant<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
      "<|channel|>final<|message|>42<|return|>";
  const std::string want = "reasoning analysis: Hm.\ncontent final: 42\n";
  const std::string refusal = "I'm sorry,  but I can't\n\nhelp with that.";
  EXPECT_EQ(parse(refusal + after), "content final: " + refusal + "\n" + want);
  EXPECT_EQ(parse("No." + after), "content final: No.\n" + want);
  EXPECT_EQ(parse(refusal), "content final: " + refusal + "\n");
  EXPECT_EQ(parse(refusal + "<|return|>"), "content final: " + refusal + "\n");
  EXPECT_EQ(parse("analysis of the data<|end|>"), "content final: analysis of the data\n");
  EXPECT_EQ(parse("<|channel|>analysis I can't do that.<|end|>"),
            "reasoning analysis: I can't do that.\n");
}

TEST(HarmonyParser, ReadsMangledChannels) {
  expect_headers({
      {"question marks", "<|channel|>?!", "content final: body\n"},
      {"digits after", "<|channel|>analysis 7", "reasoning analysis: body\n"},
      {"glued digits", "<|channel|>analysis7", "reasoning analysis: body\n"},
      {"dots before", "<|channel|>..final", "content final: body\n"},
      {"dash before", "<|channel|>-commentary", "content commentary: body\n"},
      {"capital", "<|channel|>Analysis", "reasoning analysis: body\n"},
      {"repeated name", "<|channel|>analysisanalysis", "reasoning analysis: body\n"},
      {"repeated word", "<|channel|>analysis analysis", "reasoning analysis: body\n"},
      {"unknown name", "<|channel|>thoughts", "content final: body\n"},
      {"marker twice", "<|channel|><|channel|>analysis", "reasoning analysis: body\n"},
      {"marker and name twice", "<|channel|>analysis<|channel|>final",
       "reasoning analysis: body\n"},
      {"space after marker", "<|channel|> analysis", "reasoning analysis: body\n"},
      {"nothing after marker", "<|channel|>", "content final: body\n"},
      {"marker missing", "analysis", "reasoning analysis: body\n"},
      {"no header", "", "content final: body\n"},
      {"constrain alone", "<|channel|>final <|constrain|>json", "content final type=json: body\n"},
      {"junk before", "!<|channel|>analysis", "reasoning analysis: body\n"},
  });
}

TEST(HarmonyParser, ReadsRecipientsWhereverTheyStand) {
  const char* const call = "call commentary to=functions.get-it_v2.x type=json: body\n";
  const char* const untyped = "call commentary to=functions.f: body\n";
  expect_headers({
      {"before", " to=functions.get-it_v2.x<|channel|>commentary <|constrain|>json", call},
      {"after", "<|channel|>commentary to=functions.get-it_v2.x <|constrain|>json", call},
      {"no space before constrain",
       "<|channel|>commentary to=functions.get-it_v2.x<|constrain|>json", call},
      {"space after constrain", "<|channel|>commentary to=functions.get-it_v2.x <|constrain|> json",
       call},
      {"constrain first", "<|constrain|>json<|channel|>commentary to=functions.get-it_v2.x", call},
      {"type without marker", "<|channel|>commentary to=functions.get-it_v2.x json", call},
      {"type twice", "<|channel|>commentary to=functions.get-it_v2.x <|constrain|>json json", call},
      {"bare", "<|channel|>commentary functions.f", untyped},
      {"glued to channel", "<|channel|>commentaryto=functions.f", untyped},
      {"right after marker", "<|channel|>to=functions.f", untyped},
      {"space after to=", "<|channel|>commentary to= functions.f", untyped},
      {"doubled to=", "<|channel|>commentary to=to=functions.f", untyped},
      {"two recipients", "<|channel|>commentary to=functions.f to=functions.g", untyped},
      {"both places", " to=functions.f<|channel|>commentary to=functions.f", untyped},
      {"no channel", " to=functions.f", untyped},
      {"no namespace", "<|channel|>commentary to=get_weather",
       "call commentary to=get_weather: body\n"},
      {"analysis call", "<|channel|>analysis to=functions.f",
       "call analysis to=functions.f: body\n"},
      {"to a person", "<|channel|>commentary to=assistant", "content commentary: body\n"},
      {"empty", "<|channel|>commentary to=", "content commentary: body\n"},
  });
}

TEST(HarmonyParser, NeverPutsControlTextIntoToolNames) {
  expect_headers({
      {"marker inside", "<|channel|>analysis to=<|channel|>commentary json",
       "reasoning analysis type=json: body\n"},
      // Spelled in ordinary tokens: no control ids.
      {"spelled marker", "<|channel|>commentary to=functions.f<|chan",
       "content commentary: to=functions.f<|chan\ncontent commentary: body\n"},
      {"bad letters", "<|channel|>commentary to=functions.é",
       "content commentary: to=functions.é\ncontent commentary: body\n"},
      {"JSON as name", "<|channel|>commentary to={\"a\":1}",
       "content commentary: to={\"a\":1}\ncontent commentary: body\n"},
  });
  EXPECT_EQ(parse("<|channel|>analysis to=<|channel|>{\"a\": 1}<|call|>"),
            "reasoning analysis: to= {\"a\": 1}\n");
  const std::string longest(64, 'x');
  EXPECT_EQ(parse("<|channel|>commentary to=functions." + longest + "<|message|>{}<|call|>"),
            "call commentary to=functions." + longest + ": {}\n");
  EXPECT_EQ(parse("<|channel|>commentary to=functions.y" + longest + "<|message|>{}<|call|>"),
            "content commentary: to=functions.y" + longest + "\ncontent commentary: {}\n");
}

TEST(HarmonyParser, KeepsSentencesInHeaders) {
  expect_headers({
      {"first header", "I will answer now",
       "content final: I will answer now\ncontent final: body\n"},
      {"after channel", "<|channel|>analysis We need to think",
       "reasoning analysis: We need to think\nreasoning analysis: body\n"},
      {"before a call", "<|channel|>commentary to=functions.f calling it now",
       "content commentary: calling it now\ncall commentary to=functions.f: body\n"},
      {"long word", "<|channel|>{\"city\":\"Paris\",\"days\":2}",
       "content final: {\"city\":\"Paris\",\"days\":2}\ncontent final: body\n"},
  });
  EXPECT_EQ(parse("<|channel|>final<|message|>a<|end|><|start|>I am so sorry<|message|>b"),
            "content final: a\ncontent final: I am so sorry\ncontent final: b\n");
}

TEST(HarmonyParser, AcceptsAnyRole) {
  const std::string first = "<|channel|>analysis<|message|>a<|end|><|start|>";
  const std::string want = "reasoning analysis: a\n";
  for (const char* role : {"assistant", "user", "developer", "tool", "asistant", ""}) {
    EXPECT_EQ(parse(first + role + "<|channel|>final<|message|>b<|return|>"),
              want + "content final: b\n")
        << role;
  }
  EXPECT_EQ(parse(first + "functions.f to=assistant<|channel|>commentary<|message|>20<|end|>"),
            want + "content commentary: 20\n");
  EXPECT_EQ(parse(first + "assistantfinal<|message|>b<|return|>"), want + "content final: b\n");
  EXPECT_EQ(parse(first + "assistantcommentary to=functions.f<|message|>{}<|call|>"),
            want + "call commentary to=functions.f: {}\n");
}

TEST(HarmonyParser, ResynchronisesBetweenMessages) {
  const std::string first = "<|channel|>analysis<|message|>a";
  const std::string want = "reasoning analysis: a\ncontent final: 42\n";
  for (const char* between : {"<|end|><|return|>", "<|end|><|call|>", "<|end|><|end|>", "<|call|>",
                              "<|end|>\n", "<|end|><|start|>", "<|end|><|start|>assistant", ""}) {
    EXPECT_EQ(parse(first + between + kNext), want) << between;
  }
  EXPECT_EQ(parse(first + "<|end|>assistant<|channel|>final<|message|>42<|return|>"), want);
  EXPECT_EQ(parse(first + "<|end|><|channel|>final<|message|>42<|return|>"), want);
  EXPECT_EQ(parse(first + "<|end|><|message|>42<|return|>"), want);
  EXPECT_EQ(parse(first + "<|channel|>final<|message|>42<|return|>"), want);
  EXPECT_EQ(parse(first + "<|channel|>analysis<|end|>" + kNext), want);
  EXPECT_EQ(parse(first + "<|end|>Stray words.<|end|>" + kNext),
            "reasoning analysis: a\ncontent final: Stray words.\ncontent final: 42\n");
  EXPECT_EQ(parse(first + "<|end|>Stray words." + kNext),
            "reasoning analysis: a\ncontent final: Stray words.\ncontent final: 42\n");
}

TEST(HarmonyParser, DropsDoubledMarkersInsideText) {
  EXPECT_EQ(parse("<|channel|>final<|message|><|message|>a<|constrain|>b<|message|>c<|return|>"),
            "content final: abc\n");
}

TEST(HarmonyParser, PassesArgumentsThroughAsText) {
  for (const char* body :
       {"[{\"a\":1}]", "{\"a\":1}]", "{\"a\":\"line1\nline2\"}", "", "not json"}) {
    EXPECT_EQ(parse("<|channel|>commentary to=functions.f <|constrain|>json<|message|>" +
                    std::string(body) + "<|call|>"),
              "call commentary to=functions.f type=json: " + std::string(body) + "\n");
  }
}

TEST(HarmonyParser, SurfacesCallWithoutBodyMarkerAsText) {
  EXPECT_EQ(parse("<|channel|>commentary to=functions.f <|constrain|>json{\"a\":1}<|call|>"),
            "content commentary: to=functions.f json{\"a\":1}\n");
}

TEST(HarmonyParser, EndInsideHeaderGivesNoFragments) {
  expect_all({
      {"channel", "<|channel|>anal", ""},
      {"marker", "<|channel|>", ""},
      {"recipient", "<|channel|>commentary to=functions.get_w", ""},
      {"namespace", "<|channel|>commentary to=functions.", ""},
      {"to", "<|channel|>commentary to", ""},
      {"recipient first", " to=func", ""},
      {"type", "<|channel|>commentary to=functions.f <|constrain|>js", ""},
      {"bare type", "<|channel|>commentary to=functions.f js", ""},
      {"role", "<|channel|>final<|message|>a<|end|><|start|>assis", "content final: a\n"},
      {"text after channel", "<|channel|>final I said", "content final: I said\n"},
      {"unknown channel", "<|channel|>thoughts", "content final: thoughts\n"},
  });
}

TEST(HarmonyParser, EveryPrefixKeepsTheTextSoFar) {
  HarmonyScript script;
  const std::vector<std::int32_t> ids = script.ids_of(
      "<|channel|>analysis<|message|>Häm 👍.<|end|><|start|>assistant to=functions.f<|channel|>"
      "commentary <|constrain|>json<|message|>{\"a\":1}<|call|>",
      1);
  const std::string whole = "Häm 👍.{\"a\":1}";
  HarmonyParser parser = script.parser();
  std::size_t longest = 0;
  for (std::size_t n = 0; n <= ids.size(); ++n) {
    std::vector<ParserEvent> events;
    for (std::size_t i = 0; i < n; ++i) {
      parser.push(ids[i], events);
    }
    parser.finish(events);
    std::string problem;
    std::string text;
    for (const ParsedMessage& message : join_events(events, &problem)) {
      text += message.text;
    }
    EXPECT_EQ(problem, "");
    const std::size_t cut = std::min(text.find("\xEF\xBF\xBD"), text.size());
    EXPECT_EQ(text.substr(0, cut), whole.substr(0, cut)) << n;
    EXPECT_GE(cut, longest) << n;
    longest = cut;
  }
  EXPECT_EQ(longest, whole.size());
}

TEST(HarmonyParser, HoldsBackIncompleteCharactersWithinTheirMessage) {
  EXPECT_EQ(parse("<|channel|>analysis<|message|>\xF0\x9F\x98<|end|><|start|>assistant<|channel|>"
                  "final<|message|>\x80ok<|return|>",
                  1),
            "reasoning analysis: \xEF\xBF\xBD\ncontent final: \xEF\xBF\xBDok\n");
  for (const char* bad :
       {"\xC0\x80", "\xED\xA0\x80", "\xF5\x80\x80\x80", "\xF0\x9F\x98", "\xFF\xFE"}) {
    const std::string want = parse("<|channel|>final<|message|>" + std::string(bad), 1000);
    EXPECT_EQ(want.substr(0, 18), "content final: \xEF\xBF\xBD");
    EXPECT_EQ(parse("<|channel|>final<|message|>" + std::string(bad), 1), want);
    EXPECT_EQ(parse(std::string("<|channel|>") + bad + " a b c<|message|>x", 1).substr(0, 15),
              "content final: ");
  }
  const std::string family = "👨‍👩‍👧‍👦 각 👍🏽";
  EXPECT_EQ(parse("<|channel|>final<|message|>" + family, 1), "content final: " + family + "\n");
}

TEST(HarmonyParser, AcceptsIdsOutsideTheVocabulary) {
  HarmonyScript script;
  HarmonyParser parser = script.parser();
  const HarmonyTokens& t = script.tokens();
  EXPECT_EQ(parse_all(parser, {t.message, 'a', -1, 1 << 30, 'b'}),
            "content final: a\xEF\xBF\xBD\xEF\xBF\xBD"
            "b\n");
  HarmonyTokens without = t;
  without.end_of_text = -1;
  HarmonyParser other(script.token_bytes(), without);
  std::vector<ParserEvent> events;
  EXPECT_EQ(other.push(-1, events), ParserStop::kNone);
}

TEST(HarmonyParser, TellsWhyToStop) {
  HarmonyScript script;
  const HarmonyTokens& t = script.tokens();
  for (const std::vector<std::int32_t>& before :
       {std::vector<std::int32_t>{}, {t.message}, {t.message, 'a', t.end}, {'a'}}) {
    for (const auto& [id, want] :
         {std::pair(t.return_, ParserStop::kReturn), std::pair(t.call, ParserStop::kCall),
          std::pair(t.end_of_text, ParserStop::kReturn), std::pair(t.end, ParserStop::kNone),
          std::pair(t.start, ParserStop::kNone)}) {
      HarmonyParser parser = script.parser();
      std::vector<ParserEvent> events;
      for (std::int32_t token : before) {
        EXPECT_EQ(parser.push(token, events), ParserStop::kNone);
      }
      EXPECT_EQ(parser.push(id, events), want);
    }
  }
}

TEST(HarmonyParser, EmitsTextAsSoonAsItIsCertain) {
  HarmonyScript script;
  HarmonyParser parser = script.parser();
  std::vector<ParserEvent> events;
  for (std::int32_t id : script.ids_of("<|channel|>final<|message|>", 4)) {
    EXPECT_TRUE(events.empty());
    parser.push(id, events);
  }
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].type, ParserEvent::Type::kBegin);
  parser.push('a', events);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[1].text, "a");
}

TEST(HarmonyParser, IsReusableAfterFinishAndAfterReset) {
  HarmonyScript script;
  const std::vector<std::int32_t> ids = script.ids_of(
      "<|channel|>analysis<|message|>a\xC3\xA9<|end|><|start|>assistant<|channel|>commentary "
      "to=functions.f <|constrain|>json<|message|>{}<|call|>",
      1);
  HarmonyParser parser = script.parser();
  const std::string want = parse_all(parser, ids);
  EXPECT_EQ(parse_all(parser, ids), want);
  for (std::size_t n = 0; n < ids.size(); ++n) {
    std::vector<ParserEvent> dropped;
    for (std::size_t i = 0; i < n; ++i) {
      parser.push(ids[i], dropped);
    }
    parser.reset();
    EXPECT_EQ(parse_all(parser, ids), want) << n;
  }
}

TEST(HarmonyParser, CountsRepairsOnlyWhereSomethingIsOdd) {
  HarmonyScript script;
  HarmonyParser parser = script.parser();
  parse_all(parser, script.ids_of("<|channel|>analysis<|message|>a<|end|><|start|>assistant "
                                  "to=functions.f<|channel|>commentary <|constrain|>json<|message|>"
                                  "{}<|call|>",
                                  3));
  EXPECT_EQ(parser.repairs(), 0);
  parse_all(parser, script.ids_of("<|channel|>..final<|message|>a<|end|><|return|>", 3));
  EXPECT_EQ(parser.repairs(), 2);
}

}  // namespace
}  // namespace nibble::text
