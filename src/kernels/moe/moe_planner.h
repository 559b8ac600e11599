// How `plan_product` arrives at a plan. Rules and sources: docs/plans.md.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/moe/moe_plan.h"

namespace nibble::kernels {

inline constexpr std::int64_t kPlanScaleBlock = 32;
inline constexpr std::int32_t kHopperWarps = 8;

constexpr std::int64_t divide_up(std::int64_t value, std::int64_t by) {
  return (value + by - 1) / by;
}

// Builds a plan field by field; each step may read what the steps before it decided.
class Planner {
 public:
  Planner(const ProductProblem& problem, const DeviceLimits& limits);

  Result<LaunchPlan> run();

 private:
  // The last rule given for a field stands.
  void decide(const char* field, std::string rule);
  void sort_decisions();

  void plan_cpu();
  void choose_layout();
  void choose_form();
  void plan_output_centric();
  void choose_tile_m();
  void choose_tile_n();
  void choose_persistence();
  void choose_tile_k();
  void swap_n_and_k();
  void choose_warps();
  Status choose_stages();
  void choose_split();
  void choose_padding();

  std::int64_t tiles() const;
  std::int64_t stage_bytes() const;
  std::int64_t epilogue_bytes(std::int32_t subtile) const;
  std::int64_t stages_that_fit(std::int32_t subtile) const;

  ProductProblem p_;
  DeviceLimits limits_;
  LaunchPlan plan_;
  std::int64_t rows_ = 0;
  std::int64_t rows_per_expert_ = 0;
  bool is_fp4_ = false;
  bool has_native_mx_ = false;
};

}  // namespace nibble::kernels
