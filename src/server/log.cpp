#include "server/log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>

#include "server/json.h"

namespace nibble::server {
namespace {

constexpr const char* kNames[] = {"error", "warning", "info", "debug"};

std::string now() {
  const auto time = std::chrono::system_clock::now();
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count() % 1000;
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(time)), milliseconds);
}

std::string plain(const LogField& field) {
  return std::visit(
      [](const auto& value) {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, double>) {
          return fmt::format("{:.1f}", value);
        } else {
          return fmt::format("{}", value);
        }
      },
      field.value);
}

}  // namespace

void Log::write(LogLevel level, std::string_view message, std::initializer_list<LogField> fields) {
  if (level > most_) {
    return;
  }
  std::string line;
  if (is_json_) {
    Json object = {{"time", now()},
                   {"level", kNames[static_cast<int>(level)]},
                   {"message", std::string(message)}};
    for (const LogField& field : fields) {
      std::visit([&](const auto& value) { object[std::string(field.name)] = value; }, field.value);
    }
    line = dump(object) + "\n";
  } else {
    line = fmt::format("{} {} {}", now(), kNames[static_cast<int>(level)], message);
    for (const LogField& field : fields) {
      line += fmt::format(" {}={}", field.name, plain(field));
    }
    line += "\n";
  }
  const std::lock_guard lock(mutex_);
  std::fwrite(line.data(), 1, line.size(), file_);
  std::fflush(file_);
}

}  // namespace nibble::server
