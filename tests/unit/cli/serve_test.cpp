// `nibble serve`: flags, the file of flags, exit codes.
#include <gmock/gmock.h>

#include <fstream>

#include "cli/config_file.h"
#include "unit/cli/fake_host.h"

namespace nibble::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Serve, FlagsReachTheServer) {
  World world;
  const Ran ran = world.run({"serve", "--port",
                             "9",     "--host",
                             "::1",   "-np",
                             "3",     "--api-key",
                             "a",     "--api-key",
                             "b",     "--served-model-name",
                             "m",     "--max-body-size",
                             "2K",    "--shutdown-timeout",
                             "5",     "--log-format",
                             "json",  "--max-model-len",
                             "1k",    "--activation",
                             "f32",   "--disable-log-requests"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  ASSERT_EQ(world.engine.served.size(), 1U);
  const server::ServeOptions& options = world.engine.served[0];
  EXPECT_EQ(options.listener.port, 9);
  EXPECT_EQ(options.listener.host, "::1");
  EXPECT_EQ(options.listener.max_body_bytes, 2048);
  EXPECT_EQ(options.service.engine.max_num_seqs, 3);
  EXPECT_EQ(options.service.engine.max_model_len, 1000);
  EXPECT_EQ(options.service.engine.activation, Activation::kF32);
  EXPECT_THAT(options.api.api_keys, ElementsAre("a", "b"));
  EXPECT_THAT(options.api.model_names, ElementsAre("m"));
  EXPECT_EQ(options.shutdown_timeout, std::chrono::seconds(5));
  EXPECT_TRUE(options.is_json_log);
  EXPECT_FALSE(options.api.logs_requests);
}

TEST(Serve, DefaultsListenOnThisMachineOnly) {
  World world;
  EXPECT_EQ(world.run({"serve"}).exit_code, 0);
  const server::ServeOptions& options = world.engine.served.at(0);
  EXPECT_EQ(options.listener.host, "127.0.0.1");
  EXPECT_EQ(options.listener.port, 8000);
  ASSERT_EQ(options.api.model_names.size(), 1U) << "the folder's name";
  EXPECT_EQ(options.service.engine.model.substr(options.service.engine.model.size() -
                                                options.api.model_names[0].size()),
            options.api.model_names[0]);
  EXPECT_EQ(world.run({"serve", "--port", "65536"}).exit_code, 2);
  EXPECT_EQ(world.engine.served.size(), 1U);
}

TEST(Serve, EndsWithTheCodeThatTellsWhy) {
  World world;
  for (const auto& [outcome, code] : std::initializer_list<std::pair<server::ServeOutcome, int>>{
           {{.end = server::ServeEnd::kDrained, .signal = 15}, 0},
           {{.end = server::ServeEnd::kAborted, .signal = 15}, 143},
           {{.end = server::ServeEnd::kAborted, .signal = 2}, 130},
           {{.end = server::ServeEnd::kAddressInUse,
           .status = {Code::kInvalidArgument, "cannot listen"}},
            6},
           {{.end = server::ServeEnd::kFailed, .status = {Code::kInternal, "cannot listen"}}, 1},
           {{.end = server::ServeEnd::kFailed, .status = {Code::kExhausted, "too large"}}, 4}}) {
    world.engine.serve_outcome = outcome;
    const Ran ran = world.run({"serve"});
    EXPECT_EQ(ran.exit_code, code);
    EXPECT_THAT(ran.err, HasSubstr(outcome.status.message()));
  }
}

TEST(Config, LinesBecomeFlags) {
  const auto flags = parse_config(
      "# nibble\n\nport: 9000\r\n max_model_len = 8k # tokens\nuds: '/a b'\napi-key: a#1\n"
      "disable-log-requests: true\nverbose: false\nallowed-origins: http://a:1\n");
  ASSERT_TRUE(flags.has_value());
  EXPECT_THAT(*flags, ElementsAre("--port=9000", "--max-model-len=8k", "--uds=/a b",
                                  "--api-key=a#1", "--disable-log-requests", "--verbose=false",
                                  "--allowed-origins=http://a:1"));
  for (const char* wrong : {"port", ": 1", "a b: 1", "ok: 1\n--port: 2"}) {
    ASSERT_FALSE(parse_config(wrong).has_value()) << wrong;
    EXPECT_THAT(parse_config(wrong).error().message(), HasSubstr("want name: value"));
  }
  EXPECT_THAT(parse_config("ok: 1\nwrong").error().message(), HasSubstr("line 2"));
}

TEST(Config, CommandLineWins) {
  World world;
  const std::string path = world.path("serve.conf");
  std::ofstream(path) << "port: 9\nhost: ::1\n";
  EXPECT_EQ(world.run({"serve", "--port", "7", "--config", path}).exit_code, 0);
  EXPECT_EQ(world.engine.served.at(0).listener.port, 7);
  EXPECT_EQ(world.engine.served.at(0).listener.host, "::1");
  std::ofstream(path) << "prot: 9\n";
  EXPECT_THAT(world.run({"serve", "--config=" + path}).err, HasSubstr("--prot"));
  EXPECT_EQ(world.run({"serve", "--config", path + ".none"}).exit_code, 2);
}

}  // namespace
}  // namespace nibble::cli
