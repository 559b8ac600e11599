// Operands of one call of the expert products, drawn from a seed, with the bounds of its result.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/moe/moe.h"
#include "support/tolerance.h"
#include "unit/kernels/kernel_tester.h"

namespace nibble::kernels {

enum class Routing : std::uint8_t { kMixed, kAllToTheLast, kNeverTheFirst };

enum class ExpertForm : std::uint8_t { kMxfp4, kBf16, kNvfp4 };
inline constexpr ExpertForm kExpertForms[] = {ExpertForm::kMxfp4, ExpertForm::kBf16,
                                              ExpertForm::kNvfp4};
const char* form_name(ExpertForm form);

inline constexpr ExpertInputs kExpertInputs[] = {ExpertInputs::kGiven, ExpertInputs::kInt8};
struct MoeInput {
  DType dtype;
  ExpertInputs inputs;
};
inline constexpr MoeInput kMoeInputs[] = {{DType::kF32, ExpertInputs::kGiven},
                                          {DType::kBF16, ExpertInputs::kGiven},
                                          {DType::kF32, ExpertInputs::kInt8},
                                          {DType::kBF16, ExpertInputs::kInt8}};

struct MoeShape {
  std::int32_t tokens = 0;
  std::int32_t hidden = 32;
  std::int32_t intermediate = 32;
  std::int32_t experts = 4;
  std::int32_t top_k = 2;
  ExpertForm form = ExpertForm::kMxfp4;
  Routing routing = Routing::kMixed;
  ExpertInputs inputs = ExpertInputs::kGiven;
};

// Expert matrices with their float values beside the stored form.
struct MoeMatrix {
  // `rows` of each expert.
  MoeMatrix(std::int64_t experts, std::int64_t rows, std::int64_t cols, ExpertForm form,
            std::uint64_t seed);
  void decode();  // `values` anew from blocks and scales
  ExpertMatrix args() const;

  std::int64_t rows;
  std::int64_t cols;
  ExpertForm form;
  std::vector<std::uint8_t> blocks;
  std::vector<std::uint8_t> scales;
  std::vector<float> globals;  // NVFP4: one for each expert, no powers of two
  std::vector<formats::Bf16> bf16;
  std::vector<formats::Bf16> bias;
  std::vector<double> values;
};

struct MoeCase {
  MoeCase(MoeShape given, DType x_dtype, std::uint64_t seed = 1);
  // Of `out`, which begins as `start`; the workspace is left empty.
  MoeArgs args(std::vector<float>& out) const;
  // Also the result itself, from the decoded weights in double, when wanted.
  std::vector<testing_support::ErrorBound> bounds(std::vector<float>* values = nullptr) const;

  MoeShape shape;
  DType dtype;
  MoeMatrix gate_up;
  MoeMatrix down;
  Stored x;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  std::vector<float> start;
};

// Runs a row of the table with exactly the workspace that it asks for, poisoned, and fails when a
// byte beyond is touched.
Status run_guarded(const Instance<MoeArgs>& row, MoeArgs args, ThreadPool& pool);

}  // namespace nibble::kernels
