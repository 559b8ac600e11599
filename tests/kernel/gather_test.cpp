#include "kernel/gpu.h"
#include "kernels/convert/gather_rows.h"
#include "support/counter_rng.h"

namespace nibble::kernels {
namespace {

using testing_support::CounterRng;
using GatherOnGpu = GpuTest;

constexpr std::int32_t kTableRows = 37;

TEST_F(GatherOnGpu, CopiesRowsExactlyAndMarksUnknownOnes) {
  for_each_cuda(gather_rows_instances(), [](const Instance<GatherRowsArgs>& row) {
    for (const std::int32_t cols : {1, 7, 255, 256, 257, 2880}) {
      for (const DType dtype : kActivationDtypes) {
        const Stored table(CounterRng(1).normals(std::int64_t{kTableRows} * cols), dtype);
        const OnGpu table_gpu(table.data(),
                              std::int64_t{kTableRows} * cols * dtype_bits(dtype) / 8);
        const std::vector<std::int32_t> ids = {kTableRows - 1, 0, 5, 5, kTableRows, -1, 3};
        const OnGpu ids_gpu(ids);
        const OnGpu out(static_cast<std::int64_t>(ids.size()) * cols * 4);
        ASSERT_TRUE(row.run({.table = table_gpu.data(),
                             .ids = ids_gpu.data<std::int32_t>(),
                             .out = out.data<float>(),
                             .rows = static_cast<std::int32_t>(ids.size()),
                             .cols = cols,
                             .table_rows = kTableRows,
                             .dtype = dtype},
                            on_gpu())
                        .ok());
        const std::vector<float> have = out.values<float>();
        for (std::size_t i = 0; i < ids.size(); ++i) {
          const bool is_known = ids[i] >= 0 && ids[i] < kTableRows;
          for (std::int32_t col = 0; col < cols; ++col) {
            const float value = have[i * static_cast<std::size_t>(cols) + col];
            if (is_known) {
              ASSERT_EQ(value, table.at(std::int64_t{ids[i]} * cols + col)) << i << ' ' << col;
            } else {
              ASSERT_TRUE(std::isnan(value)) << i << ' ' << col;
            }
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace nibble::kernels
