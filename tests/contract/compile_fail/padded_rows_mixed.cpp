#include "formats/gate_up.h"

std::int64_t first_up_row(nibble::formats::LogicalRows half) {
  const auto order = nibble::formats::GateUpOrder::kGateFirstHalves;
#ifdef NIBBLE_CORRECT
  return gate_up_row(order, {1, 0}, nibble::formats::pad(half, 64));
#else
  return gate_up_row(order, {1, 0}, half);  // expect: could not convert|no viable conversion
#endif
}
