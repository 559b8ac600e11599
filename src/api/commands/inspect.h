// `nibble inspect`: what a checkpoint holds and what is wrong with it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nibble/status.h"

namespace nibble::model {
enum class ExpertFormat : std::uint8_t;
}

namespace nibble::commands {

struct InspectTensor {
  std::string name;
  std::string dtype;
  std::string shape;
  std::int64_t bytes = 0;
  std::string file;
};

struct InspectReport {
  std::string folder;
  std::string architecture;
  std::string naming;                                       // "hugging face" or "openai"
  model::ExpertFormat experts{};                            // as the tensors are
  std::string quantisation;                                 // "mxfp4", "nvfp4" or "none (bf16)"
  std::vector<std::pair<std::string, std::string>> config;  // name, value; in reading order
  std::vector<InspectTensor> tensors;
  std::int64_t file_bytes = 0;
  std::int64_t expert_bytes = 0;
  std::int64_t dense_bytes = 0;
  std::int64_t parameters = 0;         // FP4 values count one each, scales none
  std::int64_t active_parameters = 0;  // read for one token
  std::vector<std::string> problems;   // every one; empty: the checkpoint is usable
};

// Needs no tokenizer. A Status only when nothing at all could be read; otherwise problems are in
// the report.
Result<InspectReport> inspect(const std::string& folder);

}  // namespace nibble::commands
