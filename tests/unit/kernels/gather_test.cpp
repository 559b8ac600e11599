#include <gmock/gmock.h>

#include "kernels/convert/gather_rows.h"
#include "support/counter_rng.h"
#include "unit/kernels/kernel_tester.h"

namespace nibble::kernels {
namespace {

using ::testing::HasSubstr;
using testing_support::CounterRng;

TEST(GatherRows, EveryInstanceCopiesExactly) {
  for_each_runnable(gather_rows_instances(), [](const Instance<GatherRowsArgs>& row) {
    for (const DType dtype : kActivationDtypes) {
      for (const std::int32_t cols : {1, 3, 7, 8, 9, 33, 96, 2880}) {
        const Stored table(CounterRng(1).normals(std::int64_t{5} * cols), dtype);
        for (const std::int32_t rows : {0, 1, 2, 7, 17}) {
          std::vector<std::int32_t> ids;
          for (std::int32_t i = 0; i < rows; ++i) {
            ids.push_back(i == 0 ? 4 : i * 3 % 5);
          }
          for (ThreadPool& pool : pools()) {
            std::vector<float> out(static_cast<std::size_t>(rows) * cols + 1, NAN);
            ASSERT_TRUE(row.run({table.data(), ids.data(), out.data(), rows, cols, 5, dtype},
                                {&pool, nullptr})
                            .ok());
            for (std::int64_t i = 0; i < std::int64_t{rows} * cols; ++i) {
              ASSERT_EQ(out[i], table.at(std::int64_t{ids[i / cols]} * cols + i % cols));
            }
            ASSERT_TRUE(std::isnan(out.back()));
          }
        }
      }
    }
  });
}

TEST(GatherRows, KeepsEveryBitPatternOfBf16) {
  std::vector<std::uint16_t> table(65536);
  for (std::size_t i = 0; i < table.size(); ++i) {
    table[i] = static_cast<std::uint16_t>(i);
  }
  const std::int32_t id = 0;
  for_each_runnable(gather_rows_instances(), [&](const Instance<GatherRowsArgs>& row) {
    std::vector<float> out(table.size());
    ASSERT_TRUE(
        row.run({table.data(), &id, out.data(), 1, 65536, 1, DType::kBF16}, {&pools()[1], nullptr})
            .ok());
    for (std::size_t i = 0; i < table.size(); ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(out[i]), static_cast<std::uint32_t>(i) << 16U);
    }
  });
}

TEST(GatherRows, NamesTheFirstBadId) {
  const std::vector<float> table(6);
  std::vector<float> out(9);
  for (const std::int32_t bad : {-1, 2, 1 << 30}) {
    const std::int32_t ids[] = {1, bad, -5};
    const Status status =
        gather_rows({table.data(), ids, out.data(), 3, 3, 2, DType::kF32}, {&pools()[0], nullptr});
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("got " + std::to_string(bad) + " in row 1"));
  }
  EXPECT_EQ(gather_rows({table.data(), nullptr, out.data(), 0, 3, 2, DType::kE2M1}, {}).code(),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace nibble::kernels
