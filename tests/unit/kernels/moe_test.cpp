#include "kernels/moe/moe.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "support/counter_rng.h"
#include "support/golden_arrays.h"
#include "unit/kernels/moe_case.h"

namespace nibble::kernels {
namespace {

using ::testing::HasSubstr;
using testing_support::ErrorBound;
using testing_support::expect_close;
using testing_support::GoldenArrays;

// The operands of the golden file. `out` begins as `start`.
struct GoldenMoe {
  explicit GoldenMoe(DType dtype) : x(golden.get("x"), dtype) {
    args.x = x.data();
    args.ids = ids.data();
    args.weights = weights.data();
    args.out = out.data();
    args.gate_up = {Mxfp4Rows{blocks[0].data(), scales[0].data()}, bias[0].data()};
    args.down = {Mxfp4Rows{blocks[1].data(), scales[1].data()}, bias[1].data()};
    args.num_tokens = golden.size(0);
    args.hidden = golden.size(1);
    args.intermediate = golden.size(2);
    args.num_experts = golden.size(3);
    args.top_k = golden.size(4);
    args.x_dtype = dtype;
  }

  GoldenArrays golden{"moe"};
  Stored x;
  std::vector<std::uint8_t> blocks[2] = {golden.get<std::uint8_t>("gate_up_blocks"),
                                         golden.get<std::uint8_t>("down_blocks")};
  std::vector<std::uint8_t> scales[2] = {golden.get<std::uint8_t>("gate_up_scales"),
                                         golden.get<std::uint8_t>("down_scales")};
  std::vector<formats::Bf16> bias[2] = {to_bf16(golden.get("gate_up_bias")),
                                        to_bf16(golden.get("down_bias"))};
  std::vector<std::int32_t> ids = golden.get<std::int32_t>("ids");
  std::vector<float> weights = golden.get("weights");
  std::vector<float> out = golden.get("start");
  MoeArgs args;
};

// Sums of double, each slot's result rounded to float32 beside the largest partial sum.
TEST(Moe, ReferenceAgreesWithNumpy) {
  for (const DType dtype : kActivationDtypes) {
    GoldenMoe input(dtype);
    ASSERT_TRUE(moe_ref(input.args).ok());
    const auto want = input.golden.get(dtype == DType::kF32 ? "out" : "out_bf16");
    float largest = 0.0F;
    for (const float value : want) {
      largest = std::max(largest, std::abs(value));
    }
    const std::vector<ErrorBound> bounds(want.size(), testing_support::roundings(8, largest));
    expect_close(input.out, want, bounds, std::string(dtype_name(dtype)));
  }
}

void check_against_reference(const Instance<MoeArgs>& row, const MoeShape& shape, DType dtype) {
  const MoeCase input(shape, dtype);
  std::vector<float> want;
  std::vector<float> have;
  const MoeArgs args = input.args(have);
  if (!row.accepts(args)) {
    return;
  }
  ASSERT_TRUE(moe_ref(input.args(want)).ok());
  ASSERT_TRUE(run_guarded(row, args, pools()[1]).ok());
  expect_close(have, want, input.bounds(),
               fmt::format("{} tokens, {} x {}, {} of {} experts, {}, x {}, routing {}, inputs {}",
                           shape.tokens, shape.hidden, shape.intermediate, shape.top_k,
                           shape.experts, form_name(shape.form), dtype_name(dtype),
                           static_cast<int>(shape.routing), static_cast<int>(shape.inputs)));
}

void check_against_reference(const Instance<MoeArgs>& row, MoeShape shape) {
  for (const DType dtype : kActivationDtypes) {
    check_against_reference(row, shape, dtype);
    if (shape.form == ExpertForm::kMxfp4) {
      shape.inputs = ExpertInputs::kInt8;
      check_against_reference(row, shape, dtype);
      shape.inputs = ExpertInputs::kGiven;
    }
  }
}

TEST(Moe, InstancesAgreeWithTheReferenceAtEverySize) {
  for_each_runnable(moe_instances(), [](const Instance<MoeArgs>& row) {
    for (const ExpertForm form : kExpertForms) {
      for (const std::int32_t tokens : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33}) {
        check_against_reference(row, {tokens, 64, 32, 4, 2, form});
      }
      for (const auto& [hidden, intermediate] :
           {std::pair{32, 32}, {32, 96}, {96, 64}, {320, 160}, {2880, 32}, {32, 2880}}) {
        check_against_reference(row, {3, hidden, intermediate, 3, 2, form});
      }
      // Many inputs share what is decoded once, up to 4,096 columns or 3,072 at a time.
      check_against_reference(row, {13, 4128, 32, 1, 1, form});
    }
    for (const std::int32_t tokens : {511, 512, 513, 1025}) {
      check_against_reference(row, {tokens, 32, 32, 4, 1});
    }
    // More inputs of an expert, and more columns, than are taken at a time.
    check_against_reference(row, {101, 96, 64, 1, 1});
    for (const std::int32_t tokens : {5, 6, 7, 11, 12, 13, 14}) {
      check_against_reference(row, {tokens, 96, 64, 1, 1});
    }
    check_against_reference(row, {13, 3072, 32, 1, 1});
    check_against_reference(row, {14, 32, 4096, 1, 1});
    check_against_reference(row, {4, 6176, 32, 1, 1});
  });
}

TEST(Moe, InstancesAgreeWithTheReferenceForEveryRouting) {
  for_each_runnable(moe_instances(), [](const Instance<MoeArgs>& row) {
    for (const std::int32_t tokens : {1, 5, 33}) {
      for (const Routing routing :
           {Routing::kMixed, Routing::kAllToTheLast, Routing::kNeverTheFirst}) {
        check_against_reference(row, {tokens, 64, 32, 5, 1, ExpertForm::kMxfp4, routing});
        check_against_reference(row, {tokens, 32, 64, 5, 4, ExpertForm::kMxfp4, routing});
      }
      check_against_reference(row, {tokens, 32, 32, 1, 1});
      check_against_reference(row, {tokens, 32, 32, 4, 4});
      check_against_reference(row, {tokens, 32, 32, 33, 8});
    }
    for (const std::int32_t experts : {127, 257, 1025}) {
      check_against_reference(row, {5, 32, 32, experts, 8});
    }
  });
}

void check_batches(const Instance<MoeArgs>& row, const MoeShape& shape, DType dtype) {
  const MoeCase input(shape, dtype);
  std::vector<float> whole;
  const MoeArgs all = input.args(whole);
  if (!row.accepts(all)) {
    return;
  }
  ASSERT_TRUE(run_guarded(row, all, pools()[0]).ok());
  for (ThreadPool& pool : pools()) {
    for (const std::int32_t batch : {1, 2, 3, 4, 8, 9, 16, 17, 33}) {
      if (batch > shape.tokens) {
        break;
      }
      std::vector<float> parts;
      const MoeArgs from = input.args(parts);
      for (std::int32_t first = 0; first < shape.tokens; first += batch) {
        MoeArgs args = from;
        args.num_tokens = std::min(batch, shape.tokens - first);
        args.x = element_at(from.x, dtype, std::int64_t{first} * shape.hidden);
        args.ids += std::int64_t{first} * shape.top_k;
        args.weights += std::int64_t{first} * shape.top_k;
        args.out += std::int64_t{first} * shape.hidden;
        ASSERT_TRUE(run_guarded(row, args, pool).ok());
      }
      ASSERT_TRUE(same_bits(parts, whole))
          << form_name(shape.form) << ", x " << dtype_name(dtype) << ", batches of " << batch
          << ", " << pool.size() << " workers";
    }
  }
}

TEST(Moe, ARowDependsNeitherOnItsBatchNorOnTheWorkers) {
  for_each_runnable(moe_instances(), [](const Instance<MoeArgs>& row) {
    for (const DType dtype : kActivationDtypes) {
      for (const ExpertForm form : kExpertForms) {
        check_batches(row, {33, 96, 64, 5, 2, form}, dtype);
      }
      for (const ExpertInputs inputs : kExpertInputs) {
        MoeShape shape{33, 96, 64, 5, 2};
        shape.inputs = inputs;
        check_batches(row, shape, dtype);
        shape = {7, 3104, 32, 1, 1};
        shape.inputs = inputs;
        check_batches(row, shape, dtype);
      }
    }
  });
}

// There every worker keeps to its rows of each expert, however few tokens there are.
TEST(Moe, ARowHasTheSameBitsOnSeveralMemoryNodes) {
  const std::vector<int> allowed = pools()[1].processors();
  if (allowed.size() < 2) {
    GTEST_SKIP() << "wants two processors";
  }
  ThreadPool apart(2, {{0, {allowed[0]}}, {1, {allowed[1]}}});
  ASSERT_TRUE(apart.has_several_nodes());
  for_each_runnable(moe_instances(), [&](const Instance<MoeArgs>& row) {
    for (const ExpertInputs inputs : kExpertInputs) {
      MoeCase input({3, 96, 64, 5, 2}, DType::kBF16);
      input.shape.inputs = inputs;
      std::vector<float> one;
      std::vector<float> two;
      if (!row.accepts(input.args(one))) {
        continue;
      }
      ASSERT_TRUE(run_guarded(row, input.args(one), pools()[0]).ok());
      ASSERT_TRUE(run_guarded(row, input.args(two), apart).ok());
      EXPECT_TRUE(same_bits(one, two));
    }
  });
}

// Sizes that overflow 16 bits of rows.
TEST(Moe, TensOfThousandsOfRowsAreWorthTheSameAsTheirParts) {
  static constexpr std::int32_t kTokens = 65'537;
  static constexpr std::int32_t kPart = 512;
  MoeCase input({kTokens, 32, 32, 3, 1}, DType::kBF16);
  for_each_runnable(moe_instances(), [&](const Instance<MoeArgs>& row) {
    if (row.info.backend == Backend::kScalar) {
      return;  // has no batches
    }
    std::vector<float> whole;
    std::vector<float> parts;
    input.shape.inputs = ExpertInputs::kGiven;
    if (!row.accepts(input.args(whole))) {
      input.shape.inputs = ExpertInputs::kInt8;
    }
    const MoeArgs all = input.args(whole);
    ASSERT_TRUE(row.accepts(all));
    ASSERT_TRUE(run_guarded(row, all, pools()[1]).ok());
    const MoeArgs from = input.args(parts);
    for (std::int32_t first = 0; first < kTokens; first += kPart) {
      MoeArgs args = from;
      args.num_tokens = std::min(kPart, kTokens - first);
      args.x = element_at(from.x, DType::kBF16, std::int64_t{first} * 32);
      args.ids += first;
      args.weights += first;
      args.out += std::int64_t{first} * 32;
      ASSERT_TRUE(run_guarded(row, args, pools()[1]).ok());
    }
    EXPECT_TRUE(same_bits(whole, parts));
  });
}

// Gate and up come from the biases alone, and the second product hands h through: out[n] = h[n].
void check_clamp(DType dtype) {
  const GoldenArrays golden("moe");
  const auto gate = golden.get("clamp_gate");
  const auto up = golden.get("clamp_up");
  const auto want = golden.get("clamp_h");
  ASSERT_EQ(want.size(), 49U);
  MoeCase input({1, 64, 64, 1, 1}, dtype);
  std::fill(input.gate_up.blocks.begin(), input.gate_up.blocks.end(), 0);
  std::fill(input.down.blocks.begin(), input.down.blocks.end(), 0);
  std::fill(input.down.scales.begin(), input.down.scales.end(), 127);
  std::fill(input.down.bias.begin(), input.down.bias.end(), formats::Bf16{});
  std::fill(input.start.begin(), input.start.end(), 0.0F);
  for (std::size_t i = 0; i < 64; ++i) {
    input.gate_up.bias[2 * i] = formats::f32_to_bf16(i < 49 ? gate[i] : 0.0F);
    input.gate_up.bias[2 * i + 1] = formats::f32_to_bf16(i < 49 ? up[i] : 0.0F);
    input.down.blocks[i * 32 + i / 2] = i % 2 == 0 ? 0x02 : 0x20;  // 1.0 in column i
  }
  input.weights = {1.0F};
  for_each_runnable(moe_instances(), [&](const Instance<MoeArgs>& row) {
    std::vector<float> out;
    const MoeArgs args = input.args(out);
    if (!row.accepts(args)) {
      return;
    }
    ASSERT_TRUE(run_guarded(row, args, pools()[1]).ok());
    for (std::size_t i = 0; i < 49; ++i) {
      const double steps = 14.0 + 2.0 * 1.702 * std::abs(gate[i]);
      const double bound = steps * testing_support::kUnitF32 * std::abs(want[i]);
      EXPECT_NEAR(out[i], want[i], testing_support::rounded(dtype, want[i], {bound, bound}).hard)
          << "gate " << gate[i] << ", up " << up[i] << ", x " << dtype_name(dtype);
    }
  });
}

TEST(Moe, GateIsClampedAboveOnlyAndUpOnBothSides) {
  for (const DType dtype : kActivationDtypes) {
    check_clamp(dtype);
  }
}

// 2^-127 is a subnormal float32, which neither flushes to zero nor becomes infinite: x of the
// opposite power brings the products back into range.
TEST(Moe, TheScaleBytesAtTheEndsOfTheRangeCount) {
  for_each_runnable(moe_instances(), [](const Instance<MoeArgs>& row) {
    for (const auto& [dtype, inputs] : kMoeInputs) {
      for (const int scale : {0, 1, 127, 254}) {
        MoeCase input({1, 32, 32, 1, 1}, dtype);
        input.shape.inputs = inputs;
        const int exponent = 127 - scale;
        // A block of int8 below 2^-118 is zero.
        const int least = inputs == ExpertInputs::kInt8 ? -116 : -120;
        std::vector<float> x(32, std::ldexp(0.25F, std::clamp(exponent, least, 120)));
        input.x = Stored(x, dtype);
        std::fill(input.gate_up.scales.begin(), input.gate_up.scales.end(),
                  static_cast<std::uint8_t>(scale));
        for (std::uint8_t& pair : input.gate_up.blocks) {
          pair &= scale == 254 ? 0xBB : 0xFF;  // at most 1.5 * 2^127
        }
        input.gate_up.decode();
        std::vector<float> want;  // not of the reference: it is checked here too
        std::vector<float> have;
        const MoeArgs args = input.args(have);
        if (!row.accepts(args)) {
          continue;
        }
        const std::vector<ErrorBound> bounds = input.bounds(&want);
        ASSERT_TRUE(run_guarded(row, args, pools()[1]).ok());
        expect_close(have, want, bounds,
                     fmt::format("scale byte {}, x {}", scale, dtype_name(dtype)));
      }
    }
  });
}

void check_order(DType dtype) {
  for_each_runnable(moe_instances(), [&](const Instance<MoeArgs>& row) {
    MoeCase input({1, 32, 32, 1, 1}, dtype);
    std::fill(input.gate_up.blocks.begin(), input.gate_up.blocks.end(), 0);
    std::fill(input.gate_up.scales.begin(), input.gate_up.scales.end(), 127);
    std::fill(input.gate_up.bias.begin(), input.gate_up.bias.end(), formats::Bf16{});
    std::fill(input.down.blocks.begin(), input.down.blocks.end(), 0);
    std::fill(input.down.scales.begin(), input.down.scales.end(), 127);
    std::fill(input.down.bias.begin(), input.down.bias.end(), formats::Bf16{});
    input.gate_up.blocks[0] = 0x64;       // row 0, the gate of h[0]: x[0] times 2, x[1] times 4
    input.gate_up.blocks[16 + 1] = 0x25;  // row 1, its up: x[2] times 3, x[3] times 1
    input.down.blocks[0] = 0x02;          // out[0] = h[0]
    std::vector<float> x(32, 0.0F);
    x[0] = 0.5F;
    x[1] = 0.25F;  // gate 2
    x[2] = 1.0F;
    x[3] = -2.0F;  // up 1
    input.x = Stored(x, dtype);
    input.start.assign(32, 0.0F);
    input.weights = {1.0F};
    std::vector<float> out;
    const MoeArgs args = input.args(out);
    if (!row.accepts(args)) {
      return;
    }
    ASSERT_TRUE(run_guarded(row, args, pools()[1]).ok());
    const double want = 2.0 * 2.0 / (1.0 + std::exp(-1.702F * 2.0));
    const ErrorBound steps = testing_support::roundings(14.0 + 2.0 * 1.702 * 2.0, want);
    EXPECT_NEAR(out[0], want, testing_support::rounded(dtype, want, steps).hard);
    for (std::size_t i = 1; i < 32; ++i) {
      EXPECT_EQ(out[i], 0.0F);
    }
  });
}

TEST(Moe, TheLowNibbleComesFirstAndEvenRowsAreGates) {
  for (const DType dtype : kActivationDtypes) {
    check_order(dtype);
  }
}

TEST(Moe, AddsToOutAndWithoutWeightAddsNothing) {
  for_each_runnable(moe_instances(), [](const Instance<MoeArgs>& row) {
    for (const auto& [dtype, inputs] : kMoeInputs) {
      MoeCase input({9, 64, 32, 4, 2}, dtype);
      input.shape.inputs = inputs;
      std::fill(input.weights.begin(), input.weights.end(), 0.0F);
      std::vector<float> out;
      const MoeArgs args = input.args(out);
      if (!row.accepts(args)) {
        continue;
      }
      ASSERT_TRUE(run_guarded(row, args, pools()[1]).ok());
      EXPECT_EQ(out, input.start);
    }
  });
}

TEST(Moe, WorksWithoutBiases) {
  for_each_runnable(moe_instances(), [](const Instance<MoeArgs>& row) {
    for (const auto& [dtype, inputs] : kMoeInputs) {
      MoeCase input({3, 64, 32, 4, 2}, dtype);
      input.shape.inputs = inputs;
      std::fill(input.gate_up.bias.begin(), input.gate_up.bias.end(), formats::Bf16{});
      std::fill(input.down.bias.begin(), input.down.bias.end(), formats::Bf16{});
      std::vector<float> want;
      std::vector<float> have;
      const MoeArgs with = input.args(want);
      if (!row.accepts(with)) {
        continue;
      }
      ASSERT_TRUE(run_guarded(row, with, pools()[1]).ok());
      MoeArgs args = input.args(have);
      args.gate_up.bias = nullptr;
      args.down.bias = nullptr;
      ASSERT_TRUE(run_guarded(row, args, pools()[1]).ok());
      EXPECT_TRUE(same_bits(have, want));
    }
  });
}

TEST(Moe, NaNStaysInItsRow) {
  for_each_runnable(moe_instances(), [](const Instance<MoeArgs>& row) {
    for (const auto& [dtype, inputs] : kMoeInputs) {
      MoeCase input({5, 32, 32, 2, 1, ExpertForm::kMxfp4, Routing::kAllToTheLast}, dtype);
      input.shape.inputs = inputs;
      store_element(input.x.data(), dtype, 2 * 32 + 31, NAN);
      for (std::uint8_t& pair : input.gate_up.blocks) {
        pair |= 0x22;  // no zero weights
      }
      std::vector<float> out;
      const MoeArgs args = input.args(out);
      if (!row.accepts(args)) {
        continue;
      }
      ASSERT_TRUE(run_guarded(row, args, pools()[1]).ok());
      for (std::size_t i = 0; i < out.size(); ++i) {
        EXPECT_EQ(std::isnan(out[i]), i / 32 == 2) << i;
      }
    }
  });
}

TEST(Moe, RefusesWhatItCannotDo) {
  MoeCase input({2, 32, 32, 4, 2}, DType::kF32);
  std::vector<float> out;
  const Exec exec{&pools()[0], nullptr};
  for (const std::int32_t bad : {-1, 4, 1 << 30}) {
    input.ids[3] = bad;
    const Status status = moe(input.args(out), exec);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(fmt::format("got {} for token 1", bad)));
    EXPECT_EQ(out, input.start);
  }
  input.ids[3] = 0;
  MoeArgs args = input.args(out);
  args.hidden = 48;
  EXPECT_EQ(moe(args, exec).code(), Code::kInvalidArgument);
  args = input.args(out);
  args.intermediate = 0;
  EXPECT_EQ(moe(args, exec).code(), Code::kInvalidArgument);
  args = input.args(out);
  args.top_k = 0;
  EXPECT_EQ(moe(args, exec).code(), Code::kInvalidArgument);
  args = input.args(out);
  args.x_dtype = DType::kE4M3;
  EXPECT_EQ(moe(args, exec).code(), Code::kUnsupported);
  args = input.args(out);
  args.num_tokens = -1;
  EXPECT_THAT(moe(args, exec).message(), HasSubstr("num_tokens >= 0, got -1"));
}

// A power of two as global scale: what MXFP4 holds as well. Every kernel that takes both gives the
// same bits, so that a checkpoint may change its form.
TEST(Moe, EqualValuesInNvfp4AndMxfp4GiveEqualBits) {
  for_each_runnable(moe_instances(), [](const Instance<MoeArgs>& row) {
    for (const DType dtype : kActivationDtypes) {
      for (const std::int32_t tokens : {1, 5, 33}) {
        const MoeCase mxfp4({tokens, 96, 64, 3, 2}, dtype);
        MoeCase nvfp4 = mxfp4;
        for (MoeMatrix* matrix : {&nvfp4.gate_up, &nvfp4.down}) {
          matrix->form = ExpertForm::kNvfp4;
          matrix->globals = {0x1p-7F, 0x1p-8F, 0x1p-9F};
          matrix->scales.clear();
          const std::vector<std::uint8_t>& from =
              (matrix == &nvfp4.down ? mxfp4.down : mxfp4.gate_up).scales;
          for (std::size_t i = 0; i < from.size(); ++i) {
            const int expert = static_cast<int>(i * 32 / (matrix->rows * matrix->cols));
            const int exponent = from[i] - 127 + 7 + expert;  // under the expert's global scale
            matrix->scales.insert(matrix->scales.end(), 2,
                                  static_cast<std::uint8_t>((exponent + 7) * 8));
          }
        }
        std::vector<float> want;
        std::vector<float> have;
        const MoeArgs left = mxfp4.args(want);
        const MoeArgs right = nvfp4.args(have);
        if (!row.accepts(right)) {
          continue;
        }
        ASSERT_TRUE(run_guarded(row, left, pools()[1]).ok());
        ASSERT_TRUE(run_guarded(row, right, pools()[1]).ok());
        EXPECT_TRUE(same_bits(have, want)) << tokens << " tokens, x " << dtype_name(dtype);
      }
    }
  });
}

TEST(Moe, ANaNScaleMakesItsBlockNaNAndNothingElse) {
  for_each_runnable(moe_instances(), [](const Instance<MoeArgs>& row) {
    for (const auto& [form, inputs] : {std::pair{ExpertForm::kMxfp4, ExpertInputs::kGiven},
                                       {ExpertForm::kMxfp4, ExpertInputs::kInt8},
                                       {ExpertForm::kNvfp4, ExpertInputs::kGiven}}) {
      for (const DType dtype : kActivationDtypes) {
        MoeCase input({5, 64, 32, 2, 1, form}, dtype);
        input.shape.inputs = inputs;
        // Biases alone make h, and make it positive: an infinite scale would stay infinite.
        std::fill(input.gate_up.blocks.begin(), input.gate_up.blocks.end(), 0);
        std::fill(input.gate_up.bias.begin(), input.gate_up.bias.end(), formats::f32_to_bf16(1.0F));
        std::fill(input.down.blocks.begin(), input.down.blocks.end(), 0x22);
        // The last block of the second row of expert 1's second product: out[1] of its tokens.
        const std::size_t blocks = form == ExpertForm::kMxfp4 ? 1 : 2;
        input.down.scales[(64 + 1) * blocks + blocks - 1] = form == ExpertForm::kMxfp4 ? 255 : 0x7F;
        std::vector<float> out;
        const MoeArgs args = input.args(out);
        if (!row.accepts(args)) {
          continue;
        }
        ASSERT_TRUE(run_guarded(row, args, pools()[1]).ok());
        for (std::size_t i = 0; i < out.size(); ++i) {
          EXPECT_EQ(std::isnan(out[i]), i % 64 == 1 && input.ids[i / 64] == 1)
              << form_name(form) << ", x " << dtype_name(dtype) << ", " << i;
        }
      }
    }
  });
}

TEST(Moe, CountsEachExpertInUseOnce) {
  const MoeCase input({5, 64, 32, 4, 1, ExpertForm::kMxfp4, Routing::kAllToTheLast}, DType::kF32);
  std::vector<float> out;
  constexpr std::int64_t kGateUp = std::int64_t{64} * (64 / 32 * 17 + 2);
  constexpr std::int64_t kDown = std::int64_t{64} * (17 + 2);
  EXPECT_EQ(moe_bytes(input.args(out)), kGateUp + kDown);
  EXPECT_EQ(moe_flops(input.args(out)), 6 * 5 * 64 * 32);
}

}  // namespace
}  // namespace nibble::kernels
