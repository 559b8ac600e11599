// Inputs of int8: what tells them from other inputs. The walk over sizes and routings is in
// moe_test.
#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <limits>

#include "kernels/moe/int8_groups.h"
#include "kernels/moe/moe.h"
#include "support/counter_rng.h"
#include "tensor/buffer.h"
#include "unit/kernels/moe_case.h"

namespace nibble::kernels {
namespace {

using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Column `col` of a row as the layout's words have it.
int value_at(const std::vector<Int8Group>& row, std::int64_t col) {
  const std::int64_t in_block = col % 32;
  const std::int64_t block = col / 32;
  const auto set = static_cast<std::size_t>(in_block / 8 * 2 + in_block % 2);
  const std::int64_t lane = block % 4 * 4 + block % 16 / 4;
  const std::int64_t byte = 4 * lane + in_block % 8 / 2;
  return row[static_cast<std::size_t>(block / 16)].values[set][byte];
}
float scale_at(const std::vector<Int8Group>& row, std::int64_t col) {
  const std::int64_t block = col / 32;
  return row[static_cast<std::size_t>(block / 16)].half_scales[block % 4 * 4 + block % 16 / 4];
}

std::vector<Int8Group> quantized(const std::vector<float>& x) {
  std::vector<Int8Group> row(static_cast<std::size_t>(num_int8_groups(std::ssize(x))));
  std::memset(row.data(), 0x55, row.size() * sizeof(Int8Group));
  quantize_row(x.data(), DType::kF32, std::ssize(x), row.data());
  return row;
}

TEST(Int8Groups, HoldEveryColumnRoundedToNearestAndItsBlocksScale) {
  for (const std::int64_t cols : {32, 64, 512, 544, 2880}) {
    std::vector<float> x = testing_support::CounterRng(7).normals(cols);
    for (std::int64_t i = 0; i < cols; ++i) {
      x[static_cast<std::size_t>(i)] *= std::ldexp(1.0F, static_cast<int>(i / 32 % 40) - 20);
    }
    const std::vector<Int8Group> row = quantized(x);
    for (std::int64_t first = 0; first < cols; first += 32) {
      const auto begin = x.begin() + first;
      const float most = std::abs(*std::max_element(
          begin, begin + 32, [](float a, float b) { return std::abs(a) < std::abs(b); }));
      int sum = 0;
      for (std::int64_t col = first; col < first + 32; ++col) {
        const float quotient = x[static_cast<std::size_t>(col)] * (127.0F / most);
        EXPECT_EQ(value_at(row, col), std::nearbyint(quotient)) << col << " of " << cols;
        EXPECT_EQ(scale_at(row, col), most / 127.0F / 2.0F);
        sum += value_at(row, col);
      }
      const std::int64_t block = first / 32;
      EXPECT_EQ(row[static_cast<std::size_t>(block / 16)].starts[int8_lane(block)], -12 * sum);
    }
    for (std::int64_t col = cols; col < std::ssize(row) * kInt8GroupColumns; ++col) {
      EXPECT_EQ(value_at(row, col), 0);
      EXPECT_EQ(scale_at(row, col), 0.0F);
    }
  }
}

TEST(Int8Groups, TiesGoToTheEvenNumber) {
  std::vector<float> x(32, 0.0F);
  x[0] = -127.0F;
  for (std::size_t i = 1; i < 32; ++i) {
    x[i] = static_cast<float>(i) - 15.5F;
  }
  const std::vector<Int8Group> row = quantized(x);
  EXPECT_EQ(value_at(row, 0), -127);
  for (std::int64_t i = 1; i < 32; ++i) {
    EXPECT_EQ(value_at(row, i), std::nearbyint(static_cast<double>(i) - 15.5)) << i;
    EXPECT_EQ(value_at(row, i) % 2, 0) << i;
  }
}

TEST(Int8Groups, ABlockThatIsNotFiniteBecomesNaNAndNoOther) {
  for (const float bad : {std::nanf(""), -std::nanf(""), kInfinity, -kInfinity}) {
    for (const std::size_t at : {32U, 45U, 63U}) {
      std::vector<float> x(96, 1.0F);
      x[at] = bad;
      const std::vector<Int8Group> row = quantized(x);
      for (std::int64_t col = 0; col < 96; ++col) {
        EXPECT_EQ(std::isnan(scale_at(row, col)), col / 32 == 1);
        EXPECT_EQ(value_at(row, col), col / 32 == 1 ? 0 : 127);
      }
    }
  }
}

TEST(Int8Groups, TheEndsOfTheRange) {
  std::vector<float> x(64, 0.0F);
  x[0] = std::numeric_limits<float>::max();
  x[1] = -x[0];
  x[32] = 0x1p-118F;
  x[33] = -0x1p-119F;
  std::vector<Int8Group> row = quantized(x);
  EXPECT_EQ(value_at(row, 0), 127);
  EXPECT_EQ(value_at(row, 1), -127);
  EXPECT_EQ(scale_at(row, 0), std::numeric_limits<float>::max() / 127.0F / 2.0F);
  EXPECT_EQ(value_at(row, 32), 127);
  EXPECT_EQ(value_at(row, 33), -64);  // 63.5
  EXPECT_EQ(scale_at(row, 32), 0x1p-118F / 127.0F / 2.0F);
  x[32] = std::nextafter(x[32], 0.0F);
  row = quantized(x);
  EXPECT_EQ(value_at(row, 32), 0);
  EXPECT_EQ(scale_at(row, 32), 0.0F);
}

TEST(Int8Groups, RowsOfBf16AreQuantizedAsTheirValues) {
  const Stored x(testing_support::CounterRng(3).normals(544), DType::kBF16);
  std::vector<Int8Group> row(2);
  quantize_row(x.data(), DType::kBF16, 544, row.data());
  const std::vector<Int8Group> want = quantized(x.values());
  for (std::int64_t col = 0; col < 2 * kInt8GroupColumns; ++col) {
    EXPECT_EQ(value_at(row, col), value_at(want, col)) << col;
    EXPECT_EQ(scale_at(row, col), scale_at(want, col)) << col;
  }
}

TEST(MoeInt8, RefusesWhatHasNoKernelForIt) {
  const DeviceFacts gpu{.name = "a GPU", .sm = 90};
  std::vector<float> out;
  for (const ExpertForm form : kExpertForms) {
    MoeCase input({2, 32, 32, 4, 2, form}, DType::kBF16);
    input.shape.inputs = ExpertInputs::kInt8;
    Buffer<std::byte> memory(1 << 16);
    MoeArgs args = input.args(out);
    args.workspace = memory.span();
    const Status here = moe(args, {&pools()[0], nullptr});
    EXPECT_EQ(here.code(), form == ExpertForm::kMxfp4 ? Code::kOk : Code::kUnsupported);
    EXPECT_EQ(here.ok(), form == ExpertForm::kMxfp4) << here.message();
    const Status there = moe(args, {.device = &gpu});
    EXPECT_EQ(there.code(), Code::kUnsupported);
    EXPECT_THAT(there.message(), HasSubstr(form == ExpertForm::kMxfp4
                                               ? "want a processor for inputs of int8, got a GPU"
                                               : "want experts of MXFP4 for inputs of int8"));
  }
}

// The sums of a block are whole numbers, so that only the order of blocks could tell kernels apart.
TEST(MoeInt8, EveryKernelGivesTheSameBits) {
  for (const DType dtype : kActivationDtypes) {
    for (const MoeShape& given :
         {MoeShape{1, 64, 96, 3, 2}, MoeShape{2, 2880, 32, 1, 1}, MoeShape{3, 544, 1056, 1, 1},
          MoeShape{4, 512, 512, 1, 1}, MoeShape{101, 96, 64, 1, 1}, MoeShape{5, 6176, 32, 1, 1}}) {
      MoeCase input(given, dtype);
      input.shape.inputs = ExpertInputs::kInt8;
      std::vector<float> first;
      for_each_runnable(moe_instances(), [&](const Instance<MoeArgs>& row) {
        std::vector<float> out;
        const MoeArgs args = input.args(out);
        if (row.info.backend == Backend::kScalar || !row.accepts(args)) {
          return;
        }
        ASSERT_TRUE(run_guarded(row, args, pools()[2]).ok());
        if (first.empty()) {
          first = out;
        }
        EXPECT_TRUE(same_bits(out, first))
            << given.tokens << " tokens, " << given.hidden << " x " << given.intermediate;
      });
      EXPECT_FALSE(first.empty());
    }
  }
}

}  // namespace
}  // namespace nibble::kernels
