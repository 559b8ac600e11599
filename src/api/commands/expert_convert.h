// One expert matrix from one stored form to another, by way of float32.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "api/commands/expert_form.h"
#include "base/thread_pool.h"
#include "formats/block_scale.h"
#include "nibble/status.h"

namespace nibble::commands {

// Bytes of one matrix in a form: value and scale tensors' shares; a global scale for nvfp4.
struct StoredExpert {
  std::span<const std::byte> values;
  std::span<const std::byte> scales;
  float global_scale = 1.0F;
};

struct ConvertedExpert {
  std::vector<std::byte> values;
  std::vector<std::byte> scales;
  float global_scale = 1.0F;
};

// Sums over the elements of a matrix; added up over the experts of a tensor.
struct ConversionError {
  double max_abs = 0.0;
  double sum_squared = 0.0;
  double sum_squared_value = 0.0;
  std::int64_t num_elems = 0;
  std::int64_t num_saturated = 0;
  std::int64_t num_zeroed_blocks = 0;
  void add(const ConversionError& other);
};

class ExpertConverter {
 public:
  ExpertConverter(ExpertFormat from, ExpertFormat to, formats::ScaleRounding rounding,
                  ThreadPool& pool)
      : from_(from), to_(to), rounding_(rounding), pool_(pool) {}

  // Fills `out`. The message of a failure lacks the tensor's name. Sums do not depend on the
  // number of threads.
  Result<ConversionError> convert(const ExpertStack& stack, const StoredExpert& in,
                                  ConvertedExpert& out);

 private:
  Status load(const ExpertStack& stack, const StoredExpert& in, std::vector<float>& values);
  Status store(const ExpertStack& stack, ConvertedExpert& out, ConversionError& error);
  ConversionError compare(const ExpertStack& stack);

  ExpertFormat from_;
  ExpertFormat to_;
  formats::ScaleRounding rounding_;
  ThreadPool& pool_;
  std::vector<float> before_;  // [rows, cols]
  std::vector<float> after_;
};

// Bytes of the value and scale shares of one matrix.
std::int64_t expert_value_bytes(const ExpertStack& stack, ExpertFormat form);
std::int64_t expert_scale_bytes(const ExpertStack& stack, ExpertFormat form);

}  // namespace nibble::commands
