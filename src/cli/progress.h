// Progress of long work: a bar on a terminal, plain lines elsewhere, on standard output.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "cli/output.h"

namespace nibble::cli {

class Progress {
 public:
  Progress(Output& out, std::string what) : out_(out), what_(std::move(what)) {}

  // Amounts are bytes. The bar moves at most ten times a second; lines come at each tenth.
  void show(std::int64_t done, std::int64_t total);
  // Removes the bar.
  void finish();

 private:
  void show_bar(double part, std::int64_t done, std::int64_t total);

  Output& out_;
  std::string what_;
  int tenths_ = 0;  // last line printed
  bool has_bar_ = false;
  std::chrono::steady_clock::time_point last_bar_{};
};

}  // namespace nibble::cli
