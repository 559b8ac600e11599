#include "model/tensor_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nibble::model {
namespace {

using ::testing::ElementsAre;

ModelConfig shape(std::int32_t heads, std::int32_t kv_heads, std::int32_t intermediate) {
  ModelConfig config;
  config.num_heads = heads;
  config.num_kv_heads = kv_heads;
  config.intermediate = intermediate;
  return config;
}

TEST(TensorParallel, SizesThatHeadsAndBlocksAllow) {
  EXPECT_THAT(tensor_parallel_sizes(shape(64, 8, 2880)), ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(tensor_parallel_sizes(shape(64, 8, 96)), ElementsAre(1, 2));  // 3 blocks
  EXPECT_THAT(tensor_parallel_sizes(shape(6, 2, 160)), ElementsAre(1, 2));
  EXPECT_THAT(tensor_parallel_sizes(shape(8, 8, 2890)), ElementsAre(1));  // no whole blocks
}

TEST(TensorParallel, OtherSizesAreRefusedWithThePossibleOnes) {
  const ModelConfig config = shape(64, 8, 2880);
  for (const std::int32_t ranks : {1, 2, 4, 8}) {
    EXPECT_TRUE(check_tensor_parallel(config, ranks).ok());
  }
  for (const std::int32_t ranks : {-1, 0, 3, 5, 6, 7, 16}) {
    const Status status = check_tensor_parallel(config, ranks);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << ranks;
    EXPECT_THAT(status.message(), ::testing::HasSubstr("possible: 1, 2, 4, 8"));
    EXPECT_THAT(status.message(), ::testing::HasSubstr("64 query heads, 8 KV heads and 90 blocks"));
  }
}

}  // namespace
}  // namespace nibble::model
