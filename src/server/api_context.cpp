#include "server/api_context.h"

#include <fmt/format.h>

#include <random>

namespace nibble::server {

std::int64_t unix_time() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string new_id(const char* prefix) {
  static std::atomic<std::uint32_t> count{0};
  thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("{}{:016x}{:08x}", prefix, random(), count++);
}

}  // namespace nibble::server
