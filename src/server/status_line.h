// The line that operators grep for, in vLLM's words.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "nibble/service.h"

namespace nibble::server {

class StatusLine {
 public:
  // The line for the time since the call before; nothing while nothing happens.
  std::optional<std::string> next(const ServiceStats& stats, std::chrono::duration<double> elapsed);

 private:
  ServiceStats last_;
  bool was_busy_ = false;
};

}  // namespace nibble::server
