// Reads checked fields out of a JSON object; private to this folder's parsers.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "nibble/status.h"

namespace nibble::model {

struct IntRange {
  std::int64_t min = 0;
  std::int64_t max = 0;
};
struct NumberRange {
  double min = 0.0;
  double max = 0.0;
};

// A JSON object without duplicate keys, at most 32 levels deep. kCorrupt otherwise.
Result<nlohmann::json> parse_object(const std::string& path, std::string_view text);

// The first failure is kept in status() and everything after it returns defaults, so that a parser
// reads as a list of fields. A field that is null counts as absent.
class JsonFields {
 public:
  // `scope` is put before field names: "rope_scaling." Both references outlive this.
  JsonFields(const std::string& path, const nlohmann::json& object, std::string scope = "")
      : path_(path), object_(object), scope_(std::move(scope)) {}

  const Status& status() const { return status_; }
  bool has(const char* name) const;
  const nlohmann::json& at(const char* name) const { return object_.at(name); }

  std::int32_t integer(const char* name, IntRange range);
  std::int32_t integer_or(const char* name, std::int32_t fallback, IntRange range);
  double number(const char* name, NumberRange range);
  double number_or(const char* name, double fallback, NumberRange range);
  bool boolean_or(const char* name, bool fallback);
  std::string text(const char* name);
  // One id or a list of ids.
  std::vector<std::int32_t> ids(const char* name, IntRange range);

  // Records "PATH: field NAME: want WANT, found FOUND" unless something failed before.
  void fail(const char* name, std::string_view want, const std::string& found,
            Code code = Code::kCorrupt);
  void fail(const char* name, std::string_view want, Code code = Code::kCorrupt);
  void fail(Status status);

 private:
  std::int32_t checked(const char* name, const nlohmann::json& value, IntRange range);

  const std::string& path_;
  const nlohmann::json& object_;
  std::string scope_;
  Status status_;
};

}  // namespace nibble::model
