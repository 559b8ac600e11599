#include "model/weight_placement.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <map>

namespace nibble::model {
namespace {

// Sizes that the workers do not divide.
struct Fake {
  Fake() {
    config.hidden = 96;
    config.intermediate = 160;
    config.num_heads = 4;
    config.num_kv_heads = 2;
    config.head_dim = 9;
    config.num_experts = 3;
    config.vocab = 33;
    LayerArrays layer;
    layer.q = matrix(36, 96);
    layer.k = matrix(18, 96);
    layer.v = matrix(18, 96);
    layer.o = matrix(96, 36);
    layer.router = matrix(3, 96);
    layer.gate_up.weight = experts(320, 96);
    layer.down.weight = experts(96, 160);
    arrays.layers.push_back(layer);
    arrays.head = matrix(33, 96);
  }

  const std::byte* take(std::int64_t bytes) {
    const std::byte* at = memory.data() + next;
    sizes[at] = bytes;
    next += bytes + 64;
    return at;
  }
  DenseMatrix matrix(std::int64_t rows, std::int64_t cols) {
    return {take(rows * cols * 2), DType::kBF16};
  }
  kernels::Mxfp4Rows experts(std::int64_t rows, std::int64_t cols) {
    const auto* blocks = reinterpret_cast<const std::uint8_t*>(take(3 * rows * cols / 2));
    return {blocks, reinterpret_cast<const std::uint8_t*>(take(3 * rows * cols / 32))};
  }

  ModelConfig config;
  ModelArrays arrays;
  std::map<const std::byte*, std::int64_t> sizes;
  std::vector<std::byte> memory = std::vector<std::byte>(1 << 19);
  std::int64_t next = 0;
};

TEST(BytesOfWorkers, AreEveryByteOfEveryMatrixOnce) {
  for (const bool int8_experts : {false, true}) {
    for (const int workers : {1, 2, 3, 7, 64}) {
      const Fake model;
      std::map<const std::byte*, std::int64_t> ranges;
      for (const WorkerBytes& share :
           bytes_of_workers(model.config, model.arrays, int8_experts, workers)) {
        EXPECT_GT(share.bytes, 0);
        EXPECT_LT(share.worker, workers);
        EXPECT_TRUE(ranges.emplace(share.begin, share.bytes).second);
      }
      for (const auto& [begin, bytes] : model.sizes) {
        const std::byte* at = begin;
        for (auto next = ranges.find(at); next != ranges.end(); next = ranges.find(at)) {
          at += next->second;
          ranges.erase(next);
        }
        EXPECT_EQ(at - begin, bytes) << workers;
      }
      EXPECT_TRUE(ranges.empty());
    }
  }
}

// As the kernels split them, computed by hand for two workers.
TEST(BytesOfWorkers, EndWhereTheKernelsPassOn) {
  const Fake model;
  const LayerArrays& layer = model.arrays.layers[0];
  std::map<std::pair<const void*, int>, std::int64_t> bytes;
  for (const WorkerBytes& share : bytes_of_workers(model.config, model.arrays, true, 2)) {
    bytes[{share.begin, share.worker}] = share.bytes;
  }
  const auto at = [&](const void* begin, int worker) { return bytes[{begin, worker}]; };
  EXPECT_EQ(at(layer.q.data, 0), 36 * 192);  // 5 of 11 tiles of q, k and v
  EXPECT_EQ(at(layer.k.data, 1), 18 * 192);
  EXPECT_EQ(at(layer.v.data, 1), 18 * 192);
  EXPECT_EQ(at(layer.o.data, 0), 48 * 72);
  EXPECT_EQ(at(model.arrays.head.data, 0), 16 * 192);  // 2 of 5 tiles
  const auto& gate_up = std::get<kernels::Mxfp4Rows>(layer.gate_up.weight);
  EXPECT_EQ(at(gate_up.blocks, 0), 128 * 48);  // 2 of 5 units of 64 rows
  EXPECT_EQ(at(gate_up.scales, 0), 128 * 3);
  EXPECT_EQ(at(gate_up.blocks + std::int64_t{320} * 48, 0), 128 * 48);  // of the second expert too
  const auto& down = std::get<kernels::Mxfp4Rows>(layer.down.weight);
  EXPECT_EQ(at(down.blocks + std::int64_t{48} * 80, 1), 48 * 80);
}

TEST(PlaceWeights, ReadsEachShareAndCountsItsPages) {
  std::vector<std::byte> memory(64 * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)), std::byte{1});
  ThreadPool pool(2, {});  // one node
  const auto half = static_cast<std::int64_t>(memory.size() / 2);
  const std::int64_t found =
      place_weights({{memory.data(), half, 0}, {memory.data() + half, half, 1}}, pool);
  if (found == 0) {
    GTEST_SKIP() << "the system forbids move_pages";
  }
  EXPECT_EQ(found, 64);  // as many begin within, wherever the memory begins
}

}  // namespace
}  // namespace nibble::model
