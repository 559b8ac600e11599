#include "client/arrivals.h"

#include <cmath>
#include <random>

namespace nibble::client {

std::vector<double> arrival_times(std::int32_t count, double rate, double burstiness,
                                  std::uint64_t seed) {
  std::vector<double> times(static_cast<std::size_t>(count), 0.0);
  if (count == 0 || std::isinf(rate)) {
    return times;
  }
  std::mt19937_64 generator(seed);
  std::gamma_distribution<double> gap(std::isinf(burstiness) ? 1.0 : burstiness);
  double sum = 0.0;
  for (double& time : times) {
    sum += std::isinf(burstiness) ? 1.0 : gap(generator);
    time = sum;
  }
  // A shape near 0 may draw nothing but zeros.
  const double scale = sum > 0.0 ? count / (rate * sum) : 0.0;
  for (double& time : times) {
    time *= scale;
  }
  return times;
}

}  // namespace nibble::client
