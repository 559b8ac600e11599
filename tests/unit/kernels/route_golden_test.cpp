// 10,240 random and adversarial cases against numpy (tools/golden/route_golden.py).
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "base/thread_pool.h"
#include "unit/kernels/route_cases.h"

namespace nibble::kernels {
namespace {

struct Answers {
  std::vector<double> projections;
  std::vector<std::uint32_t> hashes;
};

Answers load_answers() {
  std::ifstream file(NIBBLE_SOURCE_DIR "/tests/golden/route_cases.bin", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  Answers answers;
  const std::size_t count = bytes.size() / (sizeof(double) + sizeof(std::uint32_t));
  answers.projections.resize(count);
  answers.hashes.resize(count);
  std::memcpy(answers.projections.data(), bytes.data(), count * sizeof(double));
  std::memcpy(answers.hashes.data(), bytes.data() + count * sizeof(double), count * 4);
  return answers;
}

// Each row of each schedule exactly once, and no row of another expert.
bool covers_once(const RaggedBuffers& ragged, std::int32_t experts) {
  const std::size_t places = ragged.schedule.size() / std::size(kBlockRows);
  for (std::size_t s = 0; s < std::size(kBlockRows); ++s) {
    std::vector<int> seen(ragged.gather.size(), 0);
    for (std::size_t i = 0; i < places; ++i) {
      const std::int32_t entry = ragged.schedule[s * places + i];
      if (entry < 0) {
        continue;
      }
      const std::int32_t slice = entry & 0xFFFF;
      const std::int32_t begin = (entry >> 16) * kBlockRows[s];
      const std::int32_t end = std::min(begin + kBlockRows[s], ragged.slice_sizes[slice]);
      for (std::int32_t row = begin; row < end; ++row) {
        ++seen[ragged.slice_offs[slice] + row];
      }
    }
    for (std::int32_t row = 0; row < static_cast<std::int32_t>(seen.size()); ++row) {
      if (seen[row] != (row < ragged.slice_offs[experts] ? 1 : 0)) {
        return false;
      }
    }
  }
  return true;
}

void check_invariants(const RouteCase& input, const RaggedBuffers& ragged, std::int32_t experts) {
  std::int64_t live = 0;
  for (std::int32_t flat = 0; flat < static_cast<std::int32_t>(input.ids.size()); ++flat) {
    const bool is_valid = flat / input.args.top_k < input.args.num_valid_tokens;
    const bool is_live = is_valid && input.ids[flat] >= 0;
    live += is_live ? 1 : 0;
    ASSERT_EQ(ragged.scatter[flat] >= 0, is_live) << flat;
    if (is_live) {
      ASSERT_EQ(ragged.gather[ragged.scatter[flat]], flat);
      ASSERT_EQ(ragged.gates[ragged.scatter[flat]], input.weights[flat]);
    }
  }
  std::int64_t sum = 0;
  for (const std::int32_t size : ragged.slice_sizes) {
    sum += size;
  }
  ASSERT_EQ(sum, live);
  ASSERT_EQ(ragged.slice_offs[experts], live);
  ASSERT_TRUE(covers_once(ragged, experts));
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) {
    bits.push_back(std::bit_cast<std::uint32_t>(value));
  }
  return bits;
}

void check_case(RouteCase& input, double projection, std::uint32_t hash) {
  const Status status = route_ref(input.args);
  ASSERT_EQ(status.ok(), input.num_faults == 0) << status.message();
  const std::int32_t experts =
      num_local_experts(input.args.options.placement, input.args.num_experts);
  RaggedBuffers ragged(static_cast<std::int64_t>(input.ids.size()), experts);
  RaggedArgs args{input.ids.data(),      input.weights.data(),
                  input.args.num_tokens, input.args.num_valid_tokens,
                  input.args.top_k,      experts};
  ASSERT_TRUE(build_ragged(args, ragged.out()).ok());
  const std::span<const std::int32_t> arrays[] = {
      input.ids,     {&input.num_faults, 1}, ragged.slice_sizes, ragged.slice_offs,
      ragged.gather, ragged.scatter,         ragged.block_offs,  ragged.schedule};
  ASSERT_EQ(hash_of(arrays), hash);
  // Both sides round the same real weight, known to a few times 2^-52, to fp32: two neighbours at
  // most, 2^-23 apart relative to it. The projections are then summed in double.
  const Projection ours = project(input.weights, ragged.gates);
  const double terms = 2.0 * static_cast<double>(input.weights.size());
  const double bound = ours.magnitude * (0x1p-23 + terms * 0x1p-52) + terms * 0x1p-149;
  ASSERT_LE(std::abs(ours.value - projection), bound);
  check_invariants(input, ragged, experts);
}

TEST(Route, AgreesWithNumpyAndKeepsTheInvariants) {
  const Answers answers = load_answers();
  ASSERT_GE(answers.hashes.size(), 10'000U);
  int faulty = 0;
  for (std::uint32_t number = 0; number < answers.hashes.size(); ++number) {
    RouteCase input(number);
    check_case(input, answers.projections[number], answers.hashes[number]);
    ASSERT_FALSE(::testing::Test::HasFatalFailure())
        << "case " << number << ": route_golden.py --show " << number;
    faulty += input.num_faults > 0 ? 1 : 0;
  }
  EXPECT_GT(faulty, 500);  // the adversarial part is there
}

TEST(Route, CpuVersionGivesTheBitsOfTheReference) {
  ThreadPool pool(2);
  for (std::uint32_t number = 0; number < 2000; ++number) {
    RouteCase reference(number);
    RouteCase fast(number);
    const Status want = route_ref(reference.args);
    const Status have = route(fast.args, Exec{number % 2 == 0 ? &pool : nullptr, nullptr});
    ASSERT_EQ(want.message(), have.message()) << number;
    ASSERT_EQ(reference.ids, fast.ids) << number;
    ASSERT_EQ(reference.num_faults, fast.num_faults) << number;
    ASSERT_EQ(bits_of(reference.weights), bits_of(fast.weights)) << number;
  }
}

}  // namespace
}  // namespace nibble::kernels
