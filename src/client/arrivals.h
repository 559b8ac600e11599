// When requests arrive.
#pragma once

#include <cstdint>
#include <vector>

namespace nibble::client {

// Seconds after the beginning, ascending. `rate` is in requests a second; infinity: all at once.
// Gaps are drawn from a gamma distribution of shape `burstiness` and mean 1 / rate (1: a Poisson
// process; below 1: bunches; infinity: even), then scaled so that the last one comes at
// count / rate, which makes runs with other seeds last equally long.
std::vector<double> arrival_times(std::int32_t count, double rate, double burstiness,
                                  std::uint64_t seed);

}  // namespace nibble::client
