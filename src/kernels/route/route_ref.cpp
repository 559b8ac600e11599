#include <algorithm>

#include "base/error.h"
#include "kernels/route/route_rules.h"

namespace nibble::kernels {
namespace {

// Candidates rise, so stability is the tie rule.
void choose_by_full_sort(RouteScratch& scratch, std::int32_t count, std::int32_t /*top_k*/) {
  std::stable_sort(
      scratch.order.begin(), scratch.order.begin() + count,
      [&](std::int32_t a, std::int32_t b) { return scratch.keys[a] > scratch.keys[b]; });
}

}  // namespace

Status route_ref(const RouteArgs& args) {
  NIBBLE_ASSIGN_OR_RETURN(const RoutePlan plan, plan_route(args));
  RouteScratch scratch(plan);
  std::int32_t num_faults = 0;
  std::int32_t first_row = -1;
  for (std::int32_t row = 0; row < args.num_tokens; ++row) {
    if (!route_row(plan, row, &choose_by_full_sort, scratch)) {
      first_row = num_faults == 0 ? row : first_row;
      ++num_faults;
    }
  }
  if (args.num_faults != nullptr) {
    *args.num_faults = num_faults;
  }
  return num_faults == 0 ? Status() : fault_status(plan, first_row, num_faults);
}

}  // namespace nibble::kernels
