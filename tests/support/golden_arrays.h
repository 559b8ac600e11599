// Flat lists of numbers by name, from a file of tests/golden/kernels.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace nibble::testing_support {

class GoldenArrays {
 public:
  // `name`: "gemm"; `list`: the n-th object of this array of the file instead of the file itself.
  explicit GoldenArrays(const std::string& name, const std::string& list = "",
                        std::size_t index = 0);

  template <typename T = float>
  std::vector<T> get(const std::string& array) const {
    std::vector<T> out;
    for (const double value : arrays_.at(array)) {
      out.push_back(static_cast<T>(value));
    }
    return out;
  }
  double number(const std::string& array) const { return arrays_.at(array).at(0); }
  std::int32_t size(std::size_t index) const {
    return static_cast<std::int32_t>(arrays_.at("sizes").at(index));
  }
  static std::size_t count(const std::string& name, const std::string& list);

 private:
  std::map<std::string, std::vector<double>> arrays_;
};

}  // namespace nibble::testing_support
