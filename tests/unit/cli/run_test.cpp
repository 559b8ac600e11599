#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "unit/cli/fake_host.h"

namespace nibble::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::Pair;

const ChatPrompt& chat_of(const World& world) {
  return std::get<ChatPrompt>(world.engine.requests.back().prompt);
}

TEST(Run, KnowsTheCachesByName) {
  for (const auto& [name, cache] : {std::pair{"auto", KvCacheType::kAuto},
                                    {"fp8", KvCacheType::kFp8},
                                    {"fp8_e4m3", KvCacheType::kFp8}}) {
    World world;
    ASSERT_EQ(world.run({"run", world.folder(), "--kv-cache-dtype", name, "-p", "Hi"}).exit_code,
              0);
    EXPECT_EQ(world.engine.loads.at(0).kv_cache, cache) << name;
  }
}

TEST(Run, KnowsTheActivationsByName) {
  for (const auto& [name, activation] : {std::pair{"bf16", Activation::kBf16},
                                         {"f32", Activation::kF32},
                                         {"int8", Activation::kInt8}}) {
    for (const char* flag : {"--activation", "--act"}) {
      World world;
      ASSERT_EQ(world.run({"run", world.folder(), flag, name, "-p", "Hi"}).exit_code, 0);
      EXPECT_EQ(world.engine.loads.at(0).activation, activation) << flag << ' ' << name;
    }
  }
}

TEST(Run, PassesEveryFlagToTheEngine) {
  World world;
  const Ran ran = world.run({"run",
                             world.folder(),
                             "-c",
                             "8k",
                             "-t",
                             "3",
                             "--activation",
                             "f32",
                             "--reference-kernels",
                             "--decode-path",
                             "persistent",
                             "--no-enable-prefix-caching",
                             "-p",
                             "Hi",
                             "--temp",
                             "0.7",
                             "--top-p",
                             "0.9",
                             "--top-k",
                             "40",
                             "--min-p",
                             "0.05",
                             "--repeat-penalty",
                             "1.1",
                             "--presence-penalty",
                             "-0.5",
                             "--frequency-penalty",
                             "0.25",
                             "--seed",
                             "42",
                             "--logit-bias",
                             "5=-1",
                             "--logit-bias",
                             "6=2",
                             "-n",
                             "9",
                             "--stop",
                             "a",
                             "--stop",
                             "[b]",
                             "--ignore-eos",
                             "--reasoning-effort",
                             "high",
                             "--system",
                             "Be kind.",
                             "--current-date",
                             "2025-01-02"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const EngineOptions& options = world.engine.loads.at(0);
  EXPECT_EQ(options.model, world.folder());
  EXPECT_EQ(options.max_model_len, 8000);
  EXPECT_EQ(options.num_threads, 3);
  EXPECT_EQ(options.activation, Activation::kF32);
  EXPECT_TRUE(options.use_reference_kernels);
  EXPECT_EQ(options.decode_path, DecodePath::kPersistent);
  EXPECT_FALSE(options.enable_prefix_caching);
  const Request& request = world.engine.requests.at(0);
  const SamplingParams& sampling = request.sampling;
  EXPECT_EQ(sampling.temperature, 0.7F);
  EXPECT_EQ(sampling.top_p, 0.9F);
  EXPECT_EQ(sampling.top_k, 40);
  EXPECT_EQ(sampling.min_p, 0.05F);
  EXPECT_EQ(sampling.repetition_penalty, 1.1F);
  EXPECT_EQ(sampling.presence_penalty, -0.5F);
  EXPECT_EQ(sampling.frequency_penalty, 0.25F);
  EXPECT_EQ(sampling.seed, 42U);
  EXPECT_THAT(sampling.logit_bias, ElementsAre(Pair(5, -1.0F), Pair(6, 2.0F)));
  EXPECT_EQ(request.max_tokens, 9);
  EXPECT_THAT(request.stop, ElementsAre("a", "[b]"));
  EXPECT_TRUE(request.ignore_eos);
  const ChatPrompt& prompt = chat_of(world);
  EXPECT_EQ(prompt.effort, ReasoningEffort::kHigh);
  EXPECT_EQ(prompt.current_date, "2025-01-02");
  ASSERT_EQ(prompt.messages.size(), 2U);
  EXPECT_EQ(prompt.messages[0].role, ChatRole::kSystem);
  EXPECT_EQ(prompt.messages[0].content, "Be kind.");
  EXPECT_EQ(prompt.messages[1].role, ChatRole::kUser);
  EXPECT_EQ(prompt.messages[1].content, "Hi");
}

TEST(Run, LeavesUnsetSamplingToTheModel) {
  World world;
  world.run({"run", "-p", "Hi"});
  const Request& request = world.engine.requests.at(0);
  EXPECT_FALSE(request.sampling.temperature);
  EXPECT_FALSE(request.sampling.top_p);
  EXPECT_FALSE(request.sampling.top_k);
  EXPECT_FALSE(request.sampling.seed);
  EXPECT_EQ(request.max_tokens, -1);
  EXPECT_EQ(request.top_logprobs, -1);
  EXPECT_EQ(chat_of(world).current_date, "2026-11-30");
  EXPECT_EQ(world.engine.loads.at(0).model, world.folder());
}

TEST(Run, TheLastOfRepeatedFlagsCounts) {
  World world;
  world.run({"run", "-p", "a", "-p", "b", "--temp", "1", "--temperature=0"});
  EXPECT_EQ(chat_of(world).messages[0].content, "b");
  EXPECT_EQ(world.engine.requests[0].sampling.temperature, 0.0F);
}

TEST(Run, PromptsMayLookLikeFlags) {
  World world;
  world.run({"run", "-p", "--json"});
  EXPECT_EQ(chat_of(world).messages[0].content, "--json");
}

TEST(Run, PipedTextIsThePromptWithoutItsLastNewline) {
  World world;
  world.input = "two\nlines\n\n";
  world.run({"run"});
  EXPECT_EQ(chat_of(world).messages[0].content, "two\nlines\n");
}

TEST(Run, GivenAPromptStandardInputIsLeftAlone) {
  World world;
  world.input = "for someone else";
  world.run({"run", "-p", "Hi"});
  EXPECT_EQ(chat_of(world).messages[0].content, "Hi");
}

TEST(Run, AFileFollowsThePrompt) {
  World world;
  world.input = "piped\n";
  std::ofstream(world.path("notes")) << "notes\n";
  world.run({"run", "-p", "Shorten:", "-f", world.path("notes")});
  EXPECT_EQ(chat_of(world).messages[0].content, "Shorten:\n\nnotes");
  world.run({"run", "-p", "Shorten:", "-f", "-"});
  EXPECT_EQ(chat_of(world).messages[0].content, "Shorten:\n\npiped");
}

TEST(Run, AMissingFileIsAFailureThatNamesIt) {
  World world;
  const Ran ran = world.run({"run", "-f", world.path("absent")});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_EQ(ran.err, "nibble run: " + world.path("absent") + ": No such file or directory\n");
}

TEST(Run, PrintsTheAnswerAndKeepsReasoningBack) {
  World world;
  world.engine.deltas = {reasoning("hmm"), content("Once "), content("upon")};
  world.engine.response.usage = {.prompt_tokens = 10, .completion_tokens = 5};
  world.engine.response.timings = {.prefill_ms = 100, .decode_ms = 40};
  const Ran ran = world.run({"run", "-p", "Hi"});
  EXPECT_EQ(ran.out, "Once upon\n");
  EXPECT_EQ(ran.err,
            "prompt 10 tokens, 100.0 tok/s; answer 5 tokens, 100.0 tok/s; first token after 0.10 "
            "s\n");
}

TEST(Run, SaysWhenTheTokenLimitCutTheAnswer) {
  World world;
  world.engine.response.finish_reason = FinishReason::kLength;
  EXPECT_THAT(world.run({"run", "-p", "Hi"}).err, HasSubstr("; cut off at the token limit\n"));
  world.engine.response.reasoning = "hmm";
  EXPECT_THAT(world.run({"run", "-p", "Hi"}).err, HasSubstr("limit while reasoning\n"));
  EXPECT_EQ(world.run({"run", "-p", "Hi", "-q"}).err, "");
}

TEST(Run, DoesNotAddASecondNewline) {
  World world;
  world.engine.deltas = {content("done\n")};
  EXPECT_EQ(world.run({"run", "-p", "Hi"}).out, "done\n");
}

TEST(Run, MarksReasoningPlainlyOffTerminals) {
  World world;
  world.engine.deltas = {reasoning("hm"), reasoning("m"), content("Hi")};
  EXPECT_EQ(world.run({"run", "-p", "x", "--show-reasoning"}).out,
            "[reasoning]\nhmm\n[answer]\nHi\n");
}

TEST(Run, DimsReasoningOnTerminals) {
  World world;
  world.out_is_terminal = true;
  world.engine.deltas = {reasoning("hmm"), content("Hi")};
  EXPECT_EQ(world.run({"run", "-p", "x", "--show-reasoning"}).out, "\x1b[2mhmm\x1b[0m\n\nHi\n");
}

TEST(Run, OnATerminalSaysThatItThinksUntilTheAnswer) {
  World world;
  world.out_is_terminal = true;
  world.engine.deltas = {reasoning("h"), reasoning("mm"), content("Hi")};
  EXPECT_EQ(world.run({"run", "-p", "x"}).out, "\x1b[2mthinking...\x1b[0m\r\x1b[KHi\n");
  world.engine.deltas = {reasoning("hmm")};
  EXPECT_EQ(world.run({"run", "-p", "x"}).out, "\x1b[2mthinking...\x1b[0m\r\x1b[K");
}

TEST(Run, EndsTheDimmingWhenThereIsNoAnswer) {
  World world;
  world.out_is_terminal = true;
  world.engine.deltas = {reasoning("hmm")};
  EXPECT_THAT(world.run({"run", "-p", "x", "--show-reasoning"}).out, HasSubstr("\x1b[0m"));
}

TEST(Run, PutsEachToolCallOnALine) {
  World world;
  world.engine.deltas = {content("Let me see."),
                         {.kind = Delta::Kind::kToolCallBegin, .text = "a", .tool_index = 0},
                         {.kind = Delta::Kind::kToolCallArguments, .text = "{\"x\":1}"},
                         {.kind = Delta::Kind::kToolCallBegin, .text = "b", .tool_index = 1},
                         {.kind = Delta::Kind::kToolCallArguments, .text = "{}"}};
  EXPECT_EQ(world.run({"run", "-p", "x"}).out,
            "Let me see.\n[tool call] a {\"x\":1}\n[tool call] b {}\n");
}

TEST(Run, RawContinuesTheText) {
  World world;
  world.run({"run", "--raw", "-p", "Once"});
  EXPECT_EQ(std::get<TextPrompt>(world.engine.requests[0].prompt).text, "Once");
}

TEST(Run, IdsGoInAndComeOut) {
  World world;
  world.engine.deltas = {{.kind = Delta::Kind::kTokens, .tokens = {{.id = 7}}},
                         content("x"),
                         {.kind = Delta::Kind::kTokens, .tokens = {{.id = 8}, {.id = 9}}}};
  world.engine.response.ids = {7, 8, 9, 2};
  const Ran ran = world.run({"run", "--raw", "--ids", "1,2,3"});
  EXPECT_EQ(ran.out, "7,8,9,2\n");
  EXPECT_THAT(std::get<TokenPrompt>(world.engine.requests[0].prompt).ids, ElementsAre(1, 2, 3));
  EXPECT_EQ(world.engine.requests[0].top_logprobs, 0);  // what makes the engine report tokens
}

TEST(Run, JsonIsTheWholeResponseAndNothingElse) {
  World world;
  world.engine.deltas = {reasoning("r"), content("c")};
  Response& response = world.engine.response;
  response.content = "c\xF0\x9F";  // a cut character
  response.reasoning = "r";
  response.ids = {4, 5};
  response.seed = 18446744073709551615ULL;
  response.finish_reason = FinishReason::kLength;
  response.tool_calls = {{.id = "call_1", .name = "f", .arguments = "{}"}};
  response.usage = {.prompt_tokens = 3, .completion_tokens = 2, .reasoning_tokens = 1};
  const Ran ran = world.run({"run", "-p", "x", "--json"});
  EXPECT_EQ(ran.err, "");
  const auto json = nlohmann::json::parse(ran.out);
  EXPECT_EQ(json["content"], "c\xEF\xBF\xBD");
  EXPECT_EQ(json["reasoning"], "r");
  EXPECT_EQ(json["ids"], nlohmann::json({4, 5}));
  EXPECT_EQ(json["seed"], 18446744073709551615ULL);
  EXPECT_EQ(json["finish_reason"], "length");
  EXPECT_EQ(json["stop_string"], nullptr);
  EXPECT_EQ(json["tool_calls"][0]["name"], "f");
  EXPECT_EQ(json["usage"]["total_tokens"], 5);
  EXPECT_EQ(json["usage"]["reasoning_tokens"], 1);
  EXPECT_TRUE(json["timings"].contains("prefill_ms"));
}

TEST(Run, AModelThatIsNotThereIsSaidBeforeAnyInputIsRead) {
  World world;
  const Ran ran = world.run({"run", "Tell me a story."});
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_THAT(ran.err, HasSubstr("a prompt goes after -p"));
}

TEST(Run, ARefusedRequestIsUsage) {
  World world;
  world.engine.generate_status = Status(Code::kInvalidArgument, "want at most 100 ids, found 200");
  const Ran ran = world.run({"run", "-p", "x"});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_EQ(ran.err, "nibble run: want at most 100 ids, found 200\n");
}

TEST(Run, AFullDiskIsAFailureAndStopsTheWork) {
  World world;
  std::FILE* full = std::fopen("/dev/full", "wb");
  ASSERT_NE(full, nullptr);
  std::FILE* err = std::tmpfile();
  world.engine.deltas = {content("a"), content("b"), content("c")};
  Host host{.backend = world.backend(), .out = Output(full, false), .err = err};
  EXPECT_EQ(run_program({"run", "-p", "x"}, host), 1);
  EXPECT_EQ(world.engine.deltas_taken, 1);
  EXPECT_GT(std::ftell(err), 0);
  std::fclose(full);
  std::fclose(err);
}

TEST(Run, OnATerminalChats) {
  World world;
  world.in_is_terminal = true;
  world.out_is_terminal = true;
  EXPECT_THAT(world.run({"run", "--history", "lines"}).out, HasSubstr("Ctrl-D leaves"));
  EXPECT_EQ(world.history_file, "lines");
  EXPECT_EQ(world.run({"run", "--raw"}).exit_code, 2);
  EXPECT_EQ(world.run({"run", "--json"}).exit_code, 2);
  world.out_is_terminal = false;
  EXPECT_EQ(world.run({"run"}).exit_code, 2);
}

}  // namespace
}  // namespace nibble::cli
