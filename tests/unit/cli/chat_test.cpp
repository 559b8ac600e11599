#include <gmock/gmock.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/interrupt.h"
#include "unit/cli/fake_host.h"

namespace nibble::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ChatLoop : public ::testing::Test {
 protected:
  ChatLoop() {
    world_.in_is_terminal = true;
    world_.out_is_terminal = true;
    world_.engine.deltas = {content("Hello.")};
    world_.engine.response.content = "Hello.";
  }

  Ran chat(std::vector<std::string> lines, std::vector<std::string> flags = {}) {
    world_.lines = std::move(lines);
    flags.insert(flags.begin(), "run");
    return world_.run(std::move(flags));
  }
  // Roles and texts that the engine got with its n-th request: "user:Hi assistant:Hello."
  std::string messages(std::size_t n) const {
    std::string text;
    for (const ChatMessage& message :
         std::get<ChatPrompt>(world_.engine.requests.at(n).prompt).messages) {
      const char* role = message.role == ChatRole::kSystem      ? "system:"
                         : message.role == ChatRole::kAssistant ? "assistant:"
                                                                : "user:";
      text += text.empty() ? "" : " ";
      text += role;
      text += message.content;
    }
    return text;
  }
  static std::string contents(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  World world_;
};

TEST_F(ChatLoop, RemembersTheConversation) {
  const Ran ran = chat({"Hi", "  again  ", ""});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(ran.err, "");
  ASSERT_EQ(world_.engine.requests.size(), 2U);
  EXPECT_EQ(messages(0), "user:Hi");
  EXPECT_EQ(messages(1), "user:Hi assistant:Hello. user:again");
}

TEST_F(ChatLoop, ResetForgetsAllButTheInstructions) {
  chat({"Hi", "/reset", "again"}, {"--system", "Be brief."});
  EXPECT_EQ(messages(1), "system:Be brief. user:again");
}

TEST_F(ChatLoop, SystemReplacesTheInstructionsAndStartsAnew) {
  chat({"Hi", "/system  Be rude. ", "a", "/system", "b"}, {"--system", "Be brief."});
  EXPECT_EQ(messages(1), "system:Be rude. user:a");
  EXPECT_EQ(messages(2), "user:b");
}

TEST_F(ChatLoop, EffortChangesTheNextRequests) {
  const Ran ran = chat({"a", "/effort high", "b", "/effort extreme", "c"});
  const auto effort = [&](std::size_t n) {
    return std::get<ChatPrompt>(world_.engine.requests.at(n).prompt).effort;
  };
  EXPECT_EQ(effort(0), ReasoningEffort::kMedium);
  EXPECT_EQ(effort(1), ReasoningEffort::kHigh);
  EXPECT_EQ(effort(2), ReasoningEffort::kHigh);
  EXPECT_THAT(ran.out, HasSubstr("/effort wants low, medium or high; now it is high."));
}

TEST_F(ChatLoop, SavesMarkdownOrJson) {
  world_.engine.response.reasoning = "hmm";
  const Ran ran = chat({"Hi", "/save " + world_.path("a.md"), "/save " + world_.path("a.json"),
                        "/save /nowhere/x", "/save"});
  EXPECT_EQ(contents(world_.path("a.md")), "**user**\n\nHi\n\n**assistant**\n\nHello.\n");
  const auto json = nlohmann::json::parse(contents(world_.path("a.json")));
  EXPECT_EQ(json["messages"][1]["role"], "assistant");
  EXPECT_EQ(json["messages"][1]["reasoning"], "hmm");
  EXPECT_THAT(ran.out, HasSubstr("Saved 2 messages to " + world_.path("a.md")));
  EXPECT_THAT(ran.out, HasSubstr("/nowhere/x: No such file or directory"));
}

TEST_F(ChatLoop, UnknownCommandsAreNotSentToTheModel) {
  const Ran ran = chat({"/rest", "/frobnicate"});
  EXPECT_TRUE(world_.engine.requests.empty());
  EXPECT_THAT(ran.out, HasSubstr("Unknown command /rest; did you mean /reset?"));
  EXPECT_THAT(ran.out, HasSubstr("Unknown command /frobnicate; /help lists them."));
}

TEST_F(ChatLoop, HelpListsEveryCommand) {
  const Ran ran = chat({"/help"});
  for (const char* name : {"/reset", "/system", "/effort", "/save", "/help", "/exit", "Ctrl-C"}) {
    EXPECT_THAT(ran.out, HasSubstr(name));
  }
}

TEST_F(ChatLoop, ExitLeaves) {
  chat({"/exit", "not asked"});
  EXPECT_TRUE(world_.engine.requests.empty());
}

TEST_F(ChatLoop, ABackslashContinuesTheLineAndAnInterruptDropsIt) {
  chat({"one\\", "two", "lost\\", "^C", "three"});
  EXPECT_EQ(messages(0), "user:one\ntwo");
  EXPECT_THAT(messages(1), HasSubstr("user:three"));
}

TEST_F(ChatLoop, SurvivesAFailedAnswerAndForgetsItsQuestion) {
  world_.engine.generate_status = Status(Code::kInvalidArgument, "the context of 10 is full");
  const Ran ran = chat({"a", "b"});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.out, HasSubstr("the context of 10 is full (/reset forgets"));
  EXPECT_EQ(messages(1), "user:b");
}

TEST_F(ChatLoop, AnInterruptStopsTheAnswerAndKeepsWhatWasSaid) {
  struct sigaction before = {};
  sigaction(SIGINT, nullptr, &before);
  end_on_signals();
  world_.engine.deltas = {content("One "), content("two ")};
  world_.engine.response.content = "One ";
  // The fake answers at once, so the signal comes from within, before each delta.
  Backend backend = world_.backend();
  std::FILE* out = std::tmpfile();
  std::FILE* err = std::tmpfile();
  Host host{.backend = backend, .out = Output(out, true), .err = err};
  host.in_is_terminal = true;
  host.make_line_reader = [](const std::string&) {
    return std::make_unique<FakeLines>(std::vector<std::string>{"count", "more"});
  };
  host.backend.load = [&](const EngineOptions&) -> Result<std::unique_ptr<Session>> {
    class Interrupting : public FakeSession {
     public:
      using FakeSession::FakeSession;
      Result<Response> generate(const Request& request,
                                const std::function<bool(const Delta&)>& on_delta) override {
        return FakeSession::generate(request, [&](const Delta& delta) {
          std::raise(SIGINT);
          return on_delta(delta);
        });
      }
    };
    return std::unique_ptr<Session>(std::make_unique<Interrupting>(world_.engine));
  };
  EXPECT_EQ(run_program({"run"}, host), 0);
  EXPECT_EQ(world_.engine.deltas_taken, 2);  // one for each of the two answers
  EXPECT_EQ(messages(1), "user:count assistant:One  user:more");
  sigaction(SIGINT, &before, nullptr);
  std::fclose(out);
  std::fclose(err);
}

}  // namespace
}  // namespace nibble::cli
