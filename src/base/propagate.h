// Short ways to pass on a Status.
#pragma once

#include <utility>

#include "nibble/status.h"

// Returns the Status of `expression` to the caller unless it is ok.
#define NIBBLE_RETURN_IF_ERROR(expression)                                    \
  do {                                                                        \
    if (::nibble::Status nibble_status = (expression); !nibble_status.ok()) { \
      return nibble_status;                                                   \
    }                                                                         \
  } while (false)

#define NIBBLE_CONCAT_INNER(a, b) a##b
#define NIBBLE_CONCAT(a, b) NIBBLE_CONCAT_INNER(a, b)

// Declares `target` from the value of a Result, or returns its Status to the caller.
#define NIBBLE_ASSIGN_OR_RETURN(target, expression)            \
  auto NIBBLE_CONCAT(nibble_result_, __LINE__) = (expression); \
  if (!NIBBLE_CONCAT(nibble_result_, __LINE__).has_value()) {  \
    return NIBBLE_CONCAT(nibble_result_, __LINE__).error();    \
  }                                                            \
  target = std::move(NIBBLE_CONCAT(nibble_result_, __LINE__)).value()
