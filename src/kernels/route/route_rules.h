// The rules of route.h for one row, shared by reference and CPU version, which differ in how they
// choose and in who does which row.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/route/route.h"

namespace nibble::kernels {

// A checked call: bias in fp32, bounds resolved.
struct RoutePlan {
  RouteArgs args;
  std::vector<float> bias;  // empty: none
  bool logits_are_keys = true;
  bool is_placed = false;  // placement differs from the identity
};
Result<RoutePlan> plan_route(const RouteArgs& args);

// Room for one row, one for each worker.
struct RouteScratch {
  explicit RouteScratch(const RoutePlan& plan);
  std::vector<float> keys;          // [num_experts]
  std::vector<std::int32_t> order;  // [num_experts]
  std::vector<float> groups;        // [num_groups]
  std::vector<std::int32_t> kept;   // [num_groups]; the first topk_groups are the kept ones, rising
  std::vector<double> weights;      // [top_k]
};

// Writes the experts of the kept groups, rising, to the front of scratch.order; returns how many.
std::int32_t list_candidates(const RoutePlan& plan, RouteScratch& scratch);

// Sorts order[0, count) so that its first k entries are the choice, best first.
using Choose = void (*)(RouteScratch& scratch, std::int32_t count, std::int32_t top_k);

// Routes one row. False: the row is faulty and was written as padding.
bool route_row(const RoutePlan& plan, std::int32_t row, Choose choose, RouteScratch& scratch);

Status fault_status(const RoutePlan& plan, std::int32_t first_row, std::int32_t num_faults);

}  // namespace nibble::kernels
