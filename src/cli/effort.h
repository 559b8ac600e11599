// Names of the levels of reasoning effort.
#pragma once

#include <optional>
#include <string_view>

#include "nibble/request.h"

namespace nibble::cli {

inline const char* effort_name(ReasoningEffort effort) {
  switch (effort) {
    case ReasoningEffort::kLow: return "low";
    case ReasoningEffort::kMedium: return "medium";
    case ReasoningEffort::kHigh: return "high";
  }
  return "medium";
}

inline std::optional<ReasoningEffort> effort_of(std::string_view name) {
  for (const ReasoningEffort effort :
       {ReasoningEffort::kLow, ReasoningEffort::kMedium, ReasoningEffort::kHigh}) {
    if (name == effort_name(effort)) {
      return effort;
    }
  }
  return std::nullopt;
}

}  // namespace nibble::cli
