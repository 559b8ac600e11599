// --load-format: what each verb passes on, and which names it takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/cli/fake_host.h"

namespace nibble::cli {
namespace {

using ::testing::HasSubstr;

TEST(LoadFormat, DummyTakesAPresetByItsName) {
  World world;
  for (const char* verb : {"run", "bench", "serve"}) {
    std::vector<std::string> line = {verb, "gpt-oss-20b", "--load-format", "dummy"};
    if (line[0] == "run") {
      line.insert(line.end(), {"--raw", "--ids", "1,2"});
    }
    EXPECT_EQ(world.run(line).exit_code, 0) << verb;
  }
  EXPECT_EQ(world.engine.loads.at(0).model, "gpt-oss-20b");
  EXPECT_EQ(world.engine.loads.at(0).load_format, LoadFormat::kDummy);
  EXPECT_EQ(world.engine.benched.at(0).model, "gpt-oss-20b");
  EXPECT_EQ(world.engine.benched.at(0).load_format, LoadFormat::kDummy);
  EXPECT_EQ(world.engine.served.at(0).service.engine.load_format, LoadFormat::kDummy);
  EXPECT_EQ(world.engine.served.at(0).api.model_names.at(0), "gpt-oss-20b");
}

TEST(LoadFormat, FilesAreTheDefaultAndAPresetHasNone) {
  World world;
  EXPECT_EQ(world.run({"bench"}).exit_code, 0);
  EXPECT_EQ(world.engine.benched.at(0).load_format, LoadFormat::kFiles);
  const Ran ran = world.run({"bench", "gpt-oss-20b"});
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_THAT(ran.err, HasSubstr("--load-format dummy"));
  EXPECT_EQ(world.run({"serve", "gpt-oss-20b"}).exit_code, 3);
  EXPECT_EQ(world.run({"run", "gpt-oss-7b", "--load-format", "dummy", "-p", "a"}).exit_code, 3);
  EXPECT_EQ(world.run({"bench", "--load-format", "random"}).exit_code, 2);
}

}  // namespace
}  // namespace nibble::cli
