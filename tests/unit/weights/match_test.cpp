#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/folder.h"
#include "support/safetensors_bytes.h"
#include "weights/checkpoint.h"

namespace nibble::weights {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class Match : public testing::Test {
 protected:
  // A checkpoint with one 4-byte tensor "t".
  Checkpoint checkpoint(const std::string& dtype, const std::string& shape,
                        const std::string& data) {
    testing_support::write_file(
        folder_ / "model.safetensors",
        testing_support::safetensors_bytes(
            R"({"t":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":[0,4]}})",
            data));
    return Checkpoint::open(folder_.path()).value();
  }

  testing_support::TemporaryFolder folder_;
  const std::vector<TensorSpec> scales_ = {{"t", {4}, {DType::kU8, DType::kUE8M0}}};
};

TEST_F(Match, ScalesAreTheSameAsBytesAndAsExponents) {
  EXPECT_THAT(match(scales_, checkpoint("U8", "[4]", "abcd")).problems, IsEmpty());
  EXPECT_THAT(match(scales_, checkpoint("F8_E8M0", "[4]", "abcd")).problems, IsEmpty());
}

TEST_F(Match, NanScaleIsRefusedByNameAndPlace) {
  const std::string data = std::string("\x00\x7F\xFF\xFE", 4);
  EXPECT_THAT(match(scales_, checkpoint("U8", "[4]", data)).problems,
              ElementsAre("t in model.safetensors: scale 2 is byte 255 (NaN), want at most 254"));
  const std::vector<TensorSpec> blocks = {{"t", {4}, {DType::kU8}}};
  EXPECT_THAT(match(blocks, checkpoint("U8", "[4]", data)).problems, IsEmpty());
}

TEST_F(Match, Nvfp4ScalesAreNumbersAndNotNegative) {
  const std::vector<TensorSpec> scales = {{"t", {4}, {DType::kE4M3}}};
  const auto problems = [&](char code) {
    return match(scales, checkpoint("F8_E4M3", "[4]", std::string("\x00\x7E\x38", 3) + code))
        .problems;
  };
  EXPECT_THAT(problems('\x7E'), IsEmpty());
  EXPECT_THAT(problems('\x7F'),
              ElementsAre("t in model.safetensors: scale 3 is byte 127 (NaN), want at most 126"));
  EXPECT_THAT(problems('\xFF'),
              ElementsAre("t in model.safetensors: scale 3 is byte 255 (NaN), want at most 126"));
  EXPECT_THAT(
      problems('\x80'),
      ElementsAre("t in model.safetensors: scale 3 is byte 128 (negative), want at most 126"));
}

TEST_F(Match, EveryKindOfDifferenceHasItsLine) {
  const Checkpoint found = checkpoint("BF16", "[2]", "abcd");
  const std::vector<TensorSpec> shape = {{"t", {1, 2}, {DType::kBF16}}};
  EXPECT_THAT(match(shape, found).problems,
              ElementsAre("t in model.safetensors: want shape [1, 2], found [2]"));
  const std::vector<TensorSpec> dtype = {{"t", {2}, {DType::kF32, DType::kU8}}};
  EXPECT_THAT(match(dtype, found).problems,
              ElementsAre("t in model.safetensors: want f32 or u8, found bf16"));
  const std::vector<TensorSpec> other = {{"u", {2}, {DType::kF32}}};
  EXPECT_THAT(match(other, found).problems,
              ElementsAre("missing u f32 [2]", "extra t bf16 [2] in model.safetensors"));
}

TEST(MatchReport, SummaryHasTheCountAndTheFirstFive) {
  EXPECT_EQ((MatchReport{{"A"}}.summary("F")), "F: 1 tensor does not fit the config: A");
  EXPECT_EQ((MatchReport{{"A", "B", "C", "D", "E"}}.summary("F")),
            "F: 5 tensors do not fit the config: A; B; C; D; E");
  EXPECT_EQ((MatchReport{{"A", "B", "C", "D", "E", "X", "Y"}}.summary("F")),
            "F: 7 tensors do not fit the config: A; B; C; D; E; and 2 more (see `nibble inspect`)");
}

}  // namespace
}  // namespace nibble::weights
