// `nibble batch`: flags, progress, exit codes.
#include <gmock/gmock.h>

#include "unit/cli/fake_host.h"

namespace nibble::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Batch, FilesAndFlagsReachTheServer) {
  World world;
  EXPECT_EQ(world
                .run({"batch", "in.jsonl", "out.jsonl", "-np", "3", "--served-model-name", "m",
                      "--deterministic", "--max-model-len", "1k"})
                .exit_code,
            0);
  ASSERT_EQ(world.engine.batched.size(), 1U);
  const server::BatchOptions& options = world.engine.batched[0];
  EXPECT_EQ(options.input, "in.jsonl");
  EXPECT_EQ(options.output, "out.jsonl");
  EXPECT_THAT(options.api.model_names, ElementsAre("m"));
  EXPECT_EQ(options.api.response_store_bytes, 0);
  EXPECT_FALSE(options.api.logs_requests);
  EXPECT_EQ(options.service.engine.max_num_seqs, 3);
  EXPECT_EQ(options.service.engine.max_model_len, 1000);
  EXPECT_TRUE(options.service.engine.is_deterministic);
  EXPECT_EQ(world.run({"batch", "in.jsonl"}).exit_code, 2) << "two files";
}

TEST(Batch, ShowsATenthAtATimeAndTheEnd) {
  World world;
  for (std::int64_t done = 1; done <= 40; ++done) {
    world.engine.batch_steps.push_back({.total = 40, .done = done, .kept = 2});
  }
  world.engine.batch_outcome.progress = world.engine.batch_steps.back();
  const Ran ran = world.run({"batch", "a", "b"});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(ran.out, "");
  EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 10);
  EXPECT_THAT(ran.err, HasSubstr("nibble batch: 4 of 40 lines, 0 failed, "));
  EXPECT_THAT(ran.err, HasSubstr("nibble batch: 40 of 40 lines, 0 failed, "));
  EXPECT_THAT(ran.err, HasSubstr("s; 2 were there already\n"));
}

TEST(Batch, EndsWithTheCodeThatTellsWhy) {
  World world;
  const auto run = [&world](server::BatchEnd end, const Status& status,
                            const server::BatchProgress& progress = {.total = 9, .done = 4}) {
    world.engine.batch_outcome = {.end = end, .status = status, .progress = progress};
    return world.run({"batch", "a", "b"});
  };
  using server::BatchEnd;
  EXPECT_EQ(run(BatchEnd::kFiles, {Code::kNotFound, "a: no such file"}).exit_code, 1);
  EXPECT_EQ(run(BatchEnd::kFiles, {Code::kInvalidArgument, "b: want lines"}).exit_code, 2);
  EXPECT_EQ(run(BatchEnd::kModel, {Code::kNotFound, "no model"}).exit_code, 3);
  EXPECT_EQ(run(BatchEnd::kFailed, {Code::kDevice, "lost"}).exit_code, 7);
  const Ran full = run(BatchEnd::kFailed, {Code::kExhausted, "b: No space left on device"});
  EXPECT_EQ(full.exit_code, 4);
  EXPECT_THAT(full.err, HasSubstr("No space left on device; 4 of 9 lines are done"));
  const Ran failures = run(BatchEnd::kDone, {}, {.total = 9, .done = 9, .failed = 2});
  EXPECT_EQ(failures.exit_code, 1);
  EXPECT_THAT(failures.err, HasSubstr("2 of 9 lines failed; b says why"));
}

}  // namespace
}  // namespace nibble::cli
