// What the C functions share: statuses into codes and messages, C enumerators into ours.
#pragma once

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "nibble/c_api.h"

namespace nibble::c_api {

inline nibble_code report(const Status& status, nibble_message* message) {
  if (message != nullptr) {
    const std::size_t length = std::min(status.message().size(), sizeof(message->text) - 1);
    std::memcpy(message->text, status.message().data(), length);
    message->text[length] = '\0';
  }
  return static_cast<nibble_code>(status.code());
}

inline nibble_code refuse_null(const char* what, nibble_message* message) {
  return report(error(Code::kInvalidArgument, "{} is null", what), message);
}

// An enumerator from C may be any number.
template <typename Enum>
Status read_enum(int value, Enum last, const char* field, Enum& out) {
  if (value < 0 || value > static_cast<int>(last)) {
    return error(Code::kInvalidArgument, "want {} in 0..{}, got {}", field, static_cast<int>(last),
                 value);
  }
  out = static_cast<Enum>(value);
  return {};
}

}  // namespace nibble::c_api
