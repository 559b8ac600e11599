#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "unit/cli/fake_host.h"

namespace nibble::cli {
namespace {

using testing::HasSubstr;

TEST(Quantize, PassesItsFlags) {
  World world;
  const Ran ran = world.run({"quantize", world.path(""), "out", "--format", "nvfp4",
                             "--scale-rounding", "nearest", "-t", "3", "--max-shard-size", "200k"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const commands::QuantizeOptions& options = world.engine.quantised.at(0);
  EXPECT_EQ(options.destination, "out");
  EXPECT_EQ(options.format, "nvfp4");
  EXPECT_EQ(options.scale_rounding, "nearest");
  EXPECT_EQ(options.num_threads, 3);
  EXPECT_EQ(options.max_shard_bytes, 200'000);
}

TEST(Quantize, PrintsTheErrorOfEachTensor) {
  World world;
  world.engine.conversion = {.from = "bf16",
                             .to = "mxfp4",
                             .tensors = {{"a.gate_up", 0.5, 0.125, 1.0, 3, 1}},
                             .bytes_written = 5000,
                             .num_resumed = 2};
  const Ran ran = world.run({"quantize", world.path(""), "out", "--format", "mxfp4"});
  EXPECT_THAT(ran.out, HasSubstr("converting 50 %"));
  EXPECT_THAT(
      ran.out,
      HasSubstr("a.gate_up            0.5      0.125  12.50 %          3              1\n"));
  EXPECT_THAT(ran.out, HasSubstr("bf16 to mxfp4: wrote out, 5.00 kB in "));
  EXPECT_THAT(ran.out, HasSubstr("; 2 tensors were there already\n"));
  const Ran json = world.run({"quantize", world.path(""), "out", "--format", "mxfp4", "--json"});
  const auto object = nlohmann::json::parse(json.out);
  EXPECT_EQ(object["tensors"][0]["max_abs_error"], 0.5);
  EXPECT_EQ(object["num_resumed"], 2);
}

TEST(Quantize, FailsWithTheCodeOfTheFault) {
  World world;
  world.engine.conversion_status = Status(Code::kUnsupported, "src: want another form");
  const Ran ran = world.run({"quantize", world.path(""), "out", "--format", "mxfp4"});
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_EQ(ran.err, "nibble quantize: src: want another form\n");
  world.engine.conversion_status = Status(Code::kCancelled, "stopped after 1 of 2 bytes");
  EXPECT_EQ(world.run({"quantize", world.path(""), "out", "--format", "mxfp4"}).exit_code, 130);
  EXPECT_EQ(world.run({"quantize", world.path(""), "out", "--format", "int4"}).exit_code, 2);
  EXPECT_EQ(world.run({"quantize", world.path("")}).exit_code, 2);
  EXPECT_EQ(world.run({"quantize", world.path("none"), "out", "--format", "bf16"}).exit_code, 3);
}

}  // namespace
}  // namespace nibble::cli
