#include "weights/writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "support/folder.h"

namespace nibble::weights {
namespace {

using testing::HasSubstr;
using testing_support::TemporaryFolder;

std::byte expected_byte(const TensorSpec& spec, std::int64_t place) {
  return static_cast<std::byte>((place * 31 + spec.name.back()) & 0xFF);
}

Status fill(const TensorSpec& spec, std::int64_t offset, std::span<std::byte> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = expected_byte(spec, offset + static_cast<std::int64_t>(i));
  }
  return {};
}

const std::vector<TensorSpec> kSpecs = {{"u8.a", {3}, {DType::kU8}},
                                        {"bf16.b", {5, 7}, {DType::kBF16}},
                                        {"empty.c", {0, 4}, {DType::kF32}},
                                        {"f32.d", {3000, 1000}, {DType::kF32}},
                                        {"quote\".e", {9}, {DType::kUE8M0}}};

void expect_contents(const Checkpoint& checkpoint) {
  ASSERT_EQ(checkpoint.tensors().size(), kSpecs.size());
  for (const TensorSpec& spec : kSpecs) {
    const Checkpoint::Tensor* tensor = checkpoint.find(spec.name);
    ASSERT_NE(tensor, nullptr) << spec.name;
    EXPECT_EQ(tensor->view.shape, spec.shape);
    EXPECT_EQ(tensor->view.dtype, spec.dtypes.front());
    const auto* bytes = static_cast<const std::byte*>(tensor->view.data);
    for (std::int64_t i = 0; i < tensor->view.bytes(); ++i) {
      ASSERT_EQ(bytes[i], expected_byte(spec, i)) << spec.name << " at " << i;
    }
  }
}

std::int64_t bytes_below(const std::string& folder) {
  std::int64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    bytes += static_cast<std::int64_t>(entry.file_size());
  }
  return bytes;
}

class WrittenCheckpoint : public testing::TestWithParam<std::int64_t> {};

TEST_P(WrittenCheckpoint, ReadsBackTheSame) {
  const TemporaryFolder folder;
  const WriteOptions options = {.max_shard_bytes = GetParam()};
  std::int64_t last_done = 0;
  std::int64_t total = 0;
  const Status status = write_checkpoint(folder.path(), kSpecs, fill, options,
                                         [&](std::int64_t done, std::int64_t all) {
                                           EXPECT_GT(done, last_done);
                                           last_done = done;
                                           total = all;
                                           return true;
                                         });
  ASSERT_TRUE(status.ok()) << status.message();
  const Result<Checkpoint> checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message();
  expect_contents(*checkpoint);
  EXPECT_EQ(static_cast<std::int64_t>(checkpoint->num_files()), checkpoint_shards(kSpecs, options));
  EXPECT_EQ(bytes_below(folder.path()), checkpoint_bytes(kSpecs, options));
  EXPECT_EQ(last_done, total);
  EXPECT_EQ(total, checkpoint_bytes(kSpecs, options));
}

INSTANTIATE_TEST_SUITE_P(ShardSizes, WrittenCheckpoint,
                         testing::Values(1, 80, std::int64_t{1} << 30));

TEST(Writer, FailureLeavesNothingBehind) {
  const TemporaryFolder folder;
  const auto failing = [](const TensorSpec& spec, std::int64_t offset, std::span<std::byte> out) {
    return spec.name == "f32.d" && offset > 0 ? error(Code::kInternal, "no more")
                                              : fill(spec, offset, out);
  };
  const Status status =
      write_checkpoint(folder.path(), kSpecs, failing, {.max_shard_bytes = 80}, nullptr);
  EXPECT_EQ(status.message(), "no more");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Writer, StopsWhenToldAtAnyPlaceAndLeavesNothingBehind) {
  for (int calls = 1; calls < 8; ++calls) {
    const TemporaryFolder folder;
    int num_calls = 0;
    const Status status = write_checkpoint(
        folder.path(), kSpecs, fill, {.max_shard_bytes = 80},
        [&](std::int64_t /*done*/, std::int64_t /*total*/) { return ++num_calls < calls; });
    EXPECT_EQ(status.code(), Code::kCancelled);
    EXPECT_EQ(num_calls, calls);
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  }
}

TEST(Writer, DiskTooSmallIsRefusedBeforeWriting) {
  const TemporaryFolder folder;
  const std::vector<TensorSpec> huge = {{"t", {std::int64_t{1} << 56}, {DType::kU8}}};
  const Status status = write_checkpoint(folder.path(), huge, fill, {}, nullptr);
  EXPECT_EQ(status.code(), Code::kExhausted);
  EXPECT_THAT(status.message(), HasSubstr("want 7205759403792"));
  EXPECT_THAT(status.message(), HasSubstr("found "));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Writer, NameListedTwiceAndMissingFolderAreRefused) {
  const TemporaryFolder folder;
  const std::vector<TensorSpec> twice = {kSpecs[0], kSpecs[0]};
  EXPECT_EQ(write_checkpoint(folder.path(), twice, fill, {}, nullptr).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(write_checkpoint(folder / "none", kSpecs, fill, {}, nullptr).code(), Code::kNotFound);
}

}  // namespace
}  // namespace nibble::weights
