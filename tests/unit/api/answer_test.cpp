#include "api/answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace nibble {
namespace {

using engine::Finish;

// The demo's vocabulary: small, with the control tokens of the chat format.
const text::Tokenizer& tokenizer() {
  static const text::Tokenizer kTokenizer =
      *text::Tokenizer::load(NIBBLE_SOURCE_DIR "/models/demo");
  return kTokenizer;
}

std::vector<std::int32_t> ids_of(const std::string& text) {
  return tokenizer().encode(text, text::SpecialTokens::kRecognise);
}

// The ids of each single byte of `text`.
std::vector<std::int32_t> byte_ids(const std::string& text) {
  std::vector<std::int32_t> out;
  for (const char byte : text) {
    tokenizer().encode_to({&byte, 1}, text::SpecialTokens::kAsText, out);
  }
  return out;
}

struct Played {
  Response response;
  std::vector<Delta> deltas;
  std::size_t num_pushed = 0;

  std::string joined(Delta::Kind kind) const {
    std::string out;
    for (const Delta& delta : deltas) {
      out += delta.kind == kind ? delta.text : "";
    }
    return out;
  }
};

struct Script {
  std::vector<std::int32_t> ids;
  Finish finish = Finish::kStop;
  bool is_chat = true;
  Request request = {};
  std::size_t num_deltas = std::numeric_limits<std::size_t>::max();  // then the reader cancels
};

Played play(const Script& script) {
  Played out;
  AnswerFormat format{.tokenizer = &tokenizer()};
  if (script.is_chat) {
    format.harmony = *text::HarmonyTokens::find(tokenizer());
  }
  format.hidden_ids = script.request.stop_token_ids;
  format.wants_tokens = script.request.top_logprobs >= 0;
  const DeltaCallback callback = [&](const Delta& delta) {
    out.deltas.push_back(delta);
    return out.deltas.size() < script.num_deltas;
  };
  Answer answer(format, script.request, callback);
  for (const std::int32_t id : script.ids) {
    const bool is_last = ++out.num_pushed == script.ids.size();
    engine::TokenEvent event{.token = id, .finish = is_last ? script.finish : Finish::kNone};
    if (!answer.push(event)) {
      break;
    }
  }
  out.response = answer.finish(false);
  return out;
}

// Whatever ended the answer: what was streamed is what is returned.
void expect_deltas_equal_response(const Played& played) {
  EXPECT_EQ(played.joined(Delta::Kind::kContent), played.response.content);
  EXPECT_EQ(played.joined(Delta::Kind::kReasoning), played.response.reasoning);
  std::vector<ToolCall> calls;
  for (const Delta& delta : played.deltas) {
    if (delta.kind == Delta::Kind::kToolCallBegin) {
      EXPECT_EQ(delta.tool_index, static_cast<std::int32_t>(calls.size()));
      calls.push_back({delta.tool_id, delta.text, ""});
    } else if (delta.kind == Delta::Kind::kToolCallArguments) {
      ASSERT_EQ(delta.tool_index + 1, static_cast<std::int32_t>(calls.size()));
      calls.back().arguments += delta.text;
    }
  }
  ASSERT_EQ(calls.size(), played.response.tool_calls.size());
  for (std::size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(calls[i].id, played.response.tool_calls[i].id);
    EXPECT_EQ(calls[i].name, played.response.tool_calls[i].name);
    EXPECT_EQ(calls[i].arguments, played.response.tool_calls[i].arguments);
  }
}

const std::string kAnalysis = "<|channel|>analysis<|message|>Step 1, then Step 2: 42.<|end|>";
const std::string kFinal =
    "<|start|>assistant<|channel|>final<|message|>It is \xF0\x9F\x98\xBA 42, caf\xC3\xA9.";
const std::string kCall =
    "<|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>"
    "{\"city\": \"Bern\", \"days\": 3}";

TEST(Answer, SeparatesReasoningFromContent) {
  const Played all = play({.ids = ids_of(kAnalysis + kFinal + "<|return|>")});
  EXPECT_EQ(all.response.reasoning, "Step 1, then Step 2: 42.");
  EXPECT_EQ(all.response.content, "It is \xF0\x9F\x98\xBA 42, caf\xC3\xA9.");
  EXPECT_EQ(all.response.finish_reason, FinishReason::kStop);
  EXPECT_EQ(all.response.ids, ids_of(kAnalysis + kFinal + "<|return|>"));
  EXPECT_EQ(all.response.usage.completion_tokens,
            static_cast<std::int32_t>(all.response.ids.size()));
  EXPECT_GT(all.response.usage.reasoning_tokens, 5);
  EXPECT_LT(all.response.usage.reasoning_tokens, all.response.usage.completion_tokens);
  expect_deltas_equal_response(all);
}

TEST(Answer, DeltasEqualTheResponseWhereverItIsCut) {
  const std::vector<std::int32_t> ids = ids_of(kAnalysis + kCall + "<|end|>" + kFinal);
  for (std::size_t length = 0; length <= ids.size(); ++length) {
    const Played cut =
        play({.ids = {ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(length)},
              .finish = Finish::kLength,
              .request = {.stop = {"42, cats"}}});
    SCOPED_TRACE(length);
    expect_deltas_equal_response(cut);
    if (length > 0) {
      EXPECT_EQ(cut.response.finish_reason, FinishReason::kLength);
    }
  }
}

TEST(Answer, CancelledAnswerHoldsWhatWasDelivered) {
  // In the second one a single token closes a text and opens a call: two deltas at once.
  const std::string sentence_in_a_header =
      "<|channel|>commentary to=functions.weather I look it up now<|message|>{}<|call|>";
  const std::string all_kinds = kAnalysis + kCall + "<|end|>" + kFinal;
  for (const std::string& stream : {all_kinds, sentence_in_a_header}) {
    const std::vector<std::int32_t> ids = ids_of(stream);
    for (const std::int32_t top_logprobs : {-1, 0}) {  // 0: a delta for each token as well
      const Request request{.top_logprobs = top_logprobs};
      const std::size_t num_deltas = play({.ids = ids, .request = request}).deltas.size();
      EXPECT_GE(num_deltas, 3U) << stream;
      for (std::size_t count = 1; count <= num_deltas; ++count) {
        const Played cancelled = play({.ids = ids, .request = request, .num_deltas = count});
        SCOPED_TRACE(stream);
        SCOPED_TRACE(count);
        EXPECT_EQ(cancelled.deltas.size(), count) << "a delta after the reader left";
        EXPECT_EQ(cancelled.response.finish_reason, FinishReason::kCancelled);
        EXPECT_EQ(cancelled.response.ids.size(), cancelled.num_pushed);
        expect_deltas_equal_response(cancelled);
      }
    }
  }
}

TEST(Answer, StopStringsApplyToVisibleTextOnly) {
  const Played all =
      play({.ids = ids_of(kAnalysis + kFinal + "<|return|>"), .request = {.stop = {"Step 2"}}});
  EXPECT_EQ(all.response.reasoning, "Step 1, then Step 2: 42.");
  EXPECT_EQ(all.response.content, "It is \xF0\x9F\x98\xBA 42, caf\xC3\xA9.");
  EXPECT_EQ(all.response.stop_string, "");
  const Played call = play({.ids = ids_of(kCall + "<|call|>"), .request = {.stop = {"Bern"}}});
  ASSERT_EQ(call.response.tool_calls.size(), 1U);
  EXPECT_EQ(call.response.tool_calls[0].arguments, "{\"city\": \"Bern\", \"days\": 3}");
}

TEST(Answer, StopStringOverTokenBordersEndsTheAnswer) {
  std::vector<std::int32_t> ids = ids_of("<|channel|>final<|message|>");
  const std::vector<std::int32_t> text = byte_ids("alpha bravo charlie delta");
  ids.insert(ids.end(), text.begin(), text.end());
  const Played stopped = play({.ids = ids, .request = {.stop = {"zebra", "vo cha"}}});
  EXPECT_EQ(stopped.response.content, "alpha bra");
  EXPECT_EQ(stopped.response.stop_string, "vo cha");
  EXPECT_EQ(stopped.response.finish_reason, FinishReason::kStop);
  EXPECT_EQ(stopped.num_pushed, ids.size() - std::string("rlie delta").size());
  expect_deltas_equal_response(stopped);
}

TEST(Answer, ToolCallsHaveNamesIdsAndArguments) {
  const Played all = play({.ids = ids_of(kAnalysis + kCall + "<|call|>")});
  ASSERT_EQ(all.response.tool_calls.size(), 1U);
  EXPECT_EQ(all.response.tool_calls[0].name, "weather");
  EXPECT_EQ(all.response.tool_calls[0].arguments, "{\"city\": \"Bern\", \"days\": 3}");
  EXPECT_THAT(all.response.tool_calls[0].id, testing::StartsWith("call_"));
  EXPECT_EQ(all.response.finish_reason, FinishReason::kToolCalls);
  EXPECT_EQ(all.response.content, "");
  const Played again = play({.ids = ids_of(kCall + "<|call|>")});
  EXPECT_NE(again.response.tool_calls[0].id, all.response.tool_calls[0].id);
}

// However much of the call the budget allowed.
TEST(Answer, CallCutByTheBudgetSaysLength) {
  const std::vector<std::int32_t> ids = ids_of(kCall);
  for (std::size_t length = 1; length <= ids.size(); ++length) {
    const Played cut =
        play({.ids = {ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(length)},
              .finish = Finish::kLength});
    EXPECT_EQ(cut.response.finish_reason, FinishReason::kLength) << length;
  }
}

TEST(Answer, PlainTextHidesStopIdsAndNeverCutsACharacter) {
  std::vector<std::int32_t> ids = byte_ids("caf\xC3\xA9 \xF0\x9F\x98\xBA!");
  const std::int32_t end = tokenizer().special_id("<|return|>");
  ASSERT_GE(end, 0);
  ids.push_back(end);
  const Played all = play({.ids = ids, .is_chat = false, .request = {.stop_token_ids = {end}}});
  EXPECT_EQ(all.response.content, "caf\xC3\xA9 \xF0\x9F\x98\xBA!");
  EXPECT_EQ(all.response.reasoning, "");
  EXPECT_EQ(all.response.ids, ids);
  EXPECT_EQ(all.response.finish_reason, FinishReason::kStop);
  for (const Delta& delta : all.deltas) {
    EXPECT_TRUE(static_cast<unsigned char>(delta.text[0]) < 0x80 ||
                static_cast<unsigned char>(delta.text[0]) >= 0xC2)
        << "a delta that begins inside a character";
  }
  // Cut inside the cat: one replacement character, at the end.
  const Played cut =
      play({.ids = {ids.begin(), ids.end() - 4}, .finish = Finish::kLength, .is_chat = false});
  EXPECT_EQ(cut.response.content, "caf\xC3\xA9 \xEF\xBF\xBD");
  expect_deltas_equal_response(cut);
}

TEST(Answer, LogprobsAreKeptForEveryTokenWhenAskedFor) {
  const std::vector<std::int32_t> ids = ids_of(kFinal);
  const Played all = play({.ids = ids, .request = {.top_logprobs = 0}});
  ASSERT_EQ(all.response.logprobs.size(), ids.size());
  EXPECT_EQ(all.response.logprobs[3].id, ids[3]);
  EXPECT_TRUE(play({.ids = ids}).response.logprobs.empty());
}

TEST(Answer, EachTokenSaysWhatItIsPartOf) {
  const Played all = play({.ids = ids_of(kAnalysis + kCall + "<|end|>" + kFinal + "<|return|>"),
                           .request = {.top_logprobs = 0}});
  std::string texts[4];
  for (const TokenLogprob& token : all.response.logprobs) {
    texts[static_cast<std::size_t>(token.part)] += tokenizer().token_bytes(token.id);
  }
  EXPECT_EQ(texts[static_cast<std::size_t>(TokenPart::kReasoning)], all.response.reasoning);
  EXPECT_EQ(texts[static_cast<std::size_t>(TokenPart::kContent)], all.response.content);
  EXPECT_EQ(texts[static_cast<std::size_t>(TokenPart::kToolCall)],
            all.response.tool_calls.at(0).arguments);
  EXPECT_THAT(texts[static_cast<std::size_t>(TokenPart::kControl)],
              testing::EndsWith("<|message|><|return|>"));
}

std::string answer_ending_with(const std::string& mark) { return kAnalysis + kFinal + mark; }

// Declared tools that the model does not call change nothing, whatever mark ends the answer.
TEST(Answer, ToolsThatAreNotCalledLeaveTheAnswerVisible) {
  Request request;
  request.prompt = ChatPrompt{.messages = {{.content = "Hi"}}, .tools = {{.name = "weather"}}};
  for (const std::string end : {"<|return|>", "<|end|>", "<|call|>", ""}) {
    const Played all = play({.ids = ids_of(answer_ending_with(end)), .request = request});
    EXPECT_EQ(all.response.content, "It is \xF0\x9F\x98\xBA 42, caf\xC3\xA9.") << end;
    EXPECT_TRUE(all.response.tool_calls.empty()) << end;
    const Played analysis = play({.ids = ids_of(kAnalysis), .request = request});
    EXPECT_GT(analysis.response.usage.completion_tokens, 0);
    EXPECT_EQ(analysis.response.reasoning, "Step 1, then Step 2: 42.");
  }
}

TEST(Answer, NothingGeneratedIsAnEmptyAnswer) {
  const Played none = play({.ids = {-1}, .finish = Finish::kLength});
  EXPECT_EQ(none.response.content, "");
  EXPECT_TRUE(none.response.ids.empty());
  EXPECT_EQ(none.response.usage.completion_tokens, 0);
  EXPECT_EQ(none.response.finish_reason, FinishReason::kLength);
}

}  // namespace
}  // namespace nibble
