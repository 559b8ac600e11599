// Lines on standard error: a message with named values, as text or as JSON. Never a prompt or an
// answer.
#pragma once

#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <mutex>
#include <string>
#include <string_view>
#include <variant>

namespace nibble::server {

enum class LogLevel : std::uint8_t { kError, kWarning, kInfo, kDebug };

struct LogField {
  std::string_view name;
  std::variant<std::int64_t, double, std::string> value;
};

// Any thread may write; a line is written whole.
class Log {
 public:
  Log(std::FILE* file, bool is_json, LogLevel most) : file_(file), is_json_(is_json), most_(most) {}
  void write(LogLevel level, std::string_view message, std::initializer_list<LogField> fields = {});

 private:
  std::FILE* file_;
  bool is_json_;
  LogLevel most_;
  std::mutex mutex_;
};

}  // namespace nibble::server
