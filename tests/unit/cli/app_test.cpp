#include "cli/app.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "unit/cli/fake_host.h"

namespace nibble::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

void expect_one_line(const std::string& text) {
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  EXPECT_TRUE(text.ends_with('\n')) << text;
}

struct WrongLine {
  std::vector<std::string> arguments;
  std::string message;
};

TEST(Usage, EveryWrongLineIsOneLineAndExitTwo) {
  const std::vector<WrongLine> lines = {
      {{"frobnicate"}, "nibble: unknown verb 'frobnicate'; the verbs are run, serve, batch,"},
      {{"tokenise"}, "nibble: unknown verb 'tokenise'; did you mean 'tokenize'?"},
      {{"--frob"}, "nibble: unknown flag '--frob'"},
      {{"run", "--tmep", "1"}, "nibble run: unknown flag '--tmep'; did you mean '--temp'?"},
      {{"run", "--max-token=5"}, "unknown flag '--max-token'; did you mean '--max-tokens'?"},
      {{"run", "-Z"}, "unknown flag '-Z'"},
      {{"run", "Tell", "me"}, "unexpected argument 'me'; a text of several words needs quotes"},
      {{"run", "-p"}, "nibble run: --prompt needs a value"},
      {{"run", "--top-p", "2"}, "nibble run: --top-p: want a number in (0, 1], found '2'"},
      {{"run", "-n", "many"}, "--max-tokens: want a whole number from -1 to"},
      {{"run", "-n", "-2"}, "found '-2'"},
      {{"run", "--seed", "-1"}, "--seed: want a whole number from 0 to 2^64 - 1, found '-1'"},
      {{"run", "--logit-bias", "5"}, "--logit-bias: want ID=BIAS"},
      {{"run", "--reasoning-effort", "max"}, "want low or medium or high, found 'max'"},
      {{"run", "--current-date", "today"}, "want a date as YYYY-MM-DD, found 'today'"},
      {{"run", "--activation", "f16"}, "want bf16 or f32 or int8, found 'f16'"},
      {{"run", "--kv-cache-dtype", "fp8_e5m2"}, "want auto or fp8 or fp8_e4m3, found 'fp8_e5m2'"},
      {{"run", "--ids", "1,x", "--raw"}, "--ids: want token ids such as 1,2,3, found 'x'"},
      {{"run", "--ids", "1", "-p", "x"}, "want either --ids or a text, found both"},
      {{"run", "-p", ""}, "want a prompt, found 0 bytes"},
      {{"run"}, "want a prompt on standard input, found 0 bytes; or give -p TEXT"},
      {{"run", "-c", "-1"}, "--max-model-len: want a whole number from 0 to"},
      {{"score", "--ids", "1", "-p", "x"}, "found several"},
      {{"score", "--top", "-1"}, "--top: want a whole number from 0 to 1000, found '-1'"},
      {{"tokenize", "--decode", "-p", "hello"}, "want token ids such as 1,2,3, found 'hello'"},
      {{"make-model", "/tmp/x"}, "nibble make-model: --preset is required"},
      {{"make-model", "--preset", "huge", "x"}, "want tiny or gpt-oss-20b, found 'huge'"},
      {{"make-model", "--preset", "tiny"}, "want a folder to write, found none"},
  };
  for (const WrongLine& line : lines) {
    World world;
    const Ran ran = world.run(line.arguments);
    EXPECT_EQ(ran.exit_code, 2) << ran.err;
    EXPECT_THAT(ran.err, HasSubstr(line.message));
    EXPECT_THAT(ran.err, StartsWith("nibble"));
    expect_one_line(ran.err);
    EXPECT_EQ(ran.out, "");
    EXPECT_TRUE(world.engine.requests.empty());
  }
}

TEST(Usage, WithoutAVerbHelpIsPrintedAndNothingWasDone) {
  World world;
  const Ran ran = world.run({});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, AllOf(HasSubstr("Usage: nibble VERB"), HasSubstr("make-model")));
  expect_one_line(ran.err);
}

TEST(Usage, LongShortFlagsOfOtherEnginesAreUnderstood) {
  World world;
  world.run({"run", "-sys", "Be brief.", "-p", "Hi"});
  ASSERT_EQ(world.engine.requests.size(), 1U);
  const auto& prompt = std::get<ChatPrompt>(world.engine.requests[0].prompt);
  EXPECT_EQ(prompt.messages[0].content, "Be brief.");
  EXPECT_THAT(world.run({"run", "-tp", "2"}).err, HasSubstr("'--tensor-parallel-size'"));
}

TEST(Help, EveryVerbExplainsItselfWithExamples) {
  World world;
  for (const char* verb : {"run", "score", "tokenize", "inspect", "make-model", "plan"}) {
    const Ran ran = world.run({verb, "--help"});
    EXPECT_EQ(ran.exit_code, 0);
    EXPECT_EQ(ran.err, "");
    EXPECT_THAT(ran.out, AllOf(HasSubstr(std::string("Usage: nibble ") + verb),
                               HasSubstr("Examples:\n  nibble "), HasSubstr("NIBBLE_")));
    EXPECT_EQ(world.run({"help", verb}).out, ran.out);
    EXPECT_EQ(world.run({verb, "-h"}).out, ran.out);
  }
}

TEST(Help, LinesFitIntoAHundredColumns) {
  World world;
  for (const char* verb : {"", "run", "score", "tokenize", "inspect", "make-model", "plan"}) {
    const Ran ran = world.run(*verb == 0 ? std::vector<std::string>{"--help"}
                                         : std::vector<std::string>{verb, "--help"});
    for (std::size_t begin = 0, end = 0; (end = ran.out.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
      EXPECT_LE(end - begin, 100U) << ran.out.substr(begin, end - begin);
      EXPECT_TRUE(end == begin || ran.out[end - 1] != ' ') << ran.out.substr(begin, end - begin);
    }
  }
}

TEST(Version, IsOneLine) {
  World world;
  const Ran ran = world.run({"--version"});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.out, ::testing::MatchesRegex("nibble [0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

TEST(Environment, EveryFlagHasAVariableNamedAfterIt) {
  World world;
  Host host{.backend = world.backend(), .out = Output(stdout, false)};
  const std::vector<EnvironmentName> names = environment_names(host);
  EXPECT_GT(names.size(), 50U);
  for (const EnvironmentName& name : names) {
    std::string want = "NIBBLE_";
    for (const char c : name.flag.substr(2)) {
      want += c == '-' ? '_' : static_cast<char>(std::toupper(c));
    }
    EXPECT_EQ(name.variable, want);
  }
}

TEST(Environment, FillsFlagsAndTheCommandLineWins) {
  World world;
  world.set_variable("NIBBLE_PROMPT", "from the environment");
  world.set_variable("NIBBLE_TEMPERATURE", "0.5");
  world.set_variable("NIBBLE_MAX_TOKENS", "7");
  world.set_variable("NIBBLE_JSON", "1");
  const Ran ran = world.run({"run", "-n", "9"});
  ASSERT_EQ(world.engine.requests.size(), 1U) << ran.err;
  const Request& request = world.engine.requests[0];
  EXPECT_EQ(std::get<ChatPrompt>(request.prompt).messages[0].content, "from the environment");
  EXPECT_EQ(request.sampling.temperature, 0.5F);
  EXPECT_EQ(request.max_tokens, 9);
  EXPECT_THAT(ran.out, StartsWith("{"));
}

TEST(Environment, AWrongValueIsBlamedOnTheVariable) {
  World world;
  world.set_variable("NIBBLE_TOP_P", "2");
  EXPECT_EQ(world.run({"run", "-p", "x"}).err,
            "nibble run: NIBBLE_TOP_P: want a number in (0, 1], found '2'\n");
  EXPECT_EQ(world.run({"run", "-p", "x", "--top-p", "3"}).err,
            "nibble run: --top-p: want a number in (0, 1], found '3'\n");
  EXPECT_EQ(world.run({"run", "-p", "x", "--top-p", "1"}).exit_code, 0);
}

TEST(ExitCodes, FollowTheFailureOfLoading) {
  const std::vector<std::pair<Code, int>> wanted = {
      {Code::kInvalidArgument, 2}, {Code::kNotFound, 3},   {Code::kCorrupt, 3},
      {Code::kUnsupported, 3},     {Code::kExhausted, 4},  {Code::kDevice, 7},
      {Code::kInternal, 1},        {Code::kCancelled, 130}};
  for (const auto& [code, exit_code] : wanted) {
    World world;
    world.engine.load_status = Status(code, "the reason\nin two lines");
    const Ran ran = world.run({"run", "-p", "x"});
    EXPECT_EQ(ran.exit_code, exit_code);
    EXPECT_EQ(ran.err, "nibble run: the reason in two lines\n");
    EXPECT_EQ(ran.out, "");
  }
}

// What is unsupported is the hardware's fault where the hardware lacks what was asked of it,
// whatever the verb.
TEST(ExitCodes, AMissingDeviceIsNotTheModelsFault) {
  const Status no_gpu(Code::kUnsupported, "no GPU");
  for (const bool is_missing : {true, false}) {
    World world;
    world.engine.device_status = is_missing ? no_gpu : Status();
    world.engine.load_status = world.engine.bench_status = no_gpu;
    world.engine.serve_outcome = {.end = server::ServeEnd::kFailed, .status = no_gpu};
    for (const std::vector<std::string>& line :
         {std::vector<std::string>{"run", "-p", "x", "--device", "cuda"},
          {"run", "-p", "x", "--deterministic"},
          {"score", "--ids", "1,2", "--device", "cuda"},
          {"bench", "--device", "cuda"},
          {"serve", "--deterministic"}}) {
      const Ran ran = world.run(line);
      EXPECT_EQ(ran.exit_code, is_missing ? 5 : 3) << line[0] << ' ' << ran.err;
    }
    world.engine.load_status = Status(Code::kCorrupt, "bytes");
    EXPECT_EQ(world.run({"run", "-p", "x", "--device", "cuda"}).exit_code, 3);
  }
}

TEST(ExitCodes, DependOnWhatWasBeingDone) {
  EXPECT_EQ(exit_for(Code::kNotFound, During::kRun), Exit::kFailure);
  EXPECT_EQ(exit_for(Code::kUnsupported, During::kHardware), Exit::kUnsupported);
  EXPECT_EQ(exit_for(Code::kUnsupported, During::kRun), Exit::kModel);
  EXPECT_EQ(exit_for(Code::kInvalidArgument, During::kRun), Exit::kUsage);
  EXPECT_EQ(exit_for(Code::kOk, During::kRun), Exit::kDone);
}

}  // namespace
}  // namespace nibble::cli
