// Checks for bugs in this program. Never reachable from a request, a file or the network: those get
// a Status. On in release builds.
#pragma once

#include <string>

namespace nibble {

// Prints the failed condition, its values and its place to standard error, then aborts.
[[noreturn]] void check_failed(const char* condition, const char* file, int line,
                               const std::string& values);

namespace check_values {
inline std::string text() { return {}; }
template <typename... Values>
std::string text(const Values&... values) {
  std::string out;
  ((out += ' ', out += std::to_string(values)), ...);
  return out;
}
}  // namespace check_values

}  // namespace nibble

#define NIBBLE_CHECK(condition, ...)                                     \
  do {                                                                   \
    if (!(condition)) [[unlikely]] {                                     \
      ::nibble::check_failed(#condition, __FILE__, __LINE__,             \
                             ::nibble::check_values::text(__VA_ARGS__)); \
    }                                                                    \
  } while (false)

#ifdef NDEBUG
#define NIBBLE_DCHECK(condition, ...) \
  do {                                \
    if (false) {                      \
      (void)(condition);              \
    }                                 \
  } while (false)
#else
#define NIBBLE_DCHECK(condition, ...) NIBBLE_CHECK(condition __VA_OPT__(, ) __VA_ARGS__)
#endif
