#include "model/json_fields.h"

#include <set>
#include <utility>

#include "base/error.h"

namespace nibble::model {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 32;

// A value as it may stand in an error line.
std::string shown(const json& value) {
  if (value.is_object()) {
    return "an object";
  }
  if (value.is_array()) {
    return fmt::format("a list of {}", value.size());
  }
  constexpr std::size_t kMaxBytes = 80;
  const std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() > kMaxBytes ? text.substr(0, kMaxBytes) + "..." : text;
}

}  // namespace

Result<json> parse_object(const std::string& path, std::string_view text) {
  std::vector<std::set<std::string>> keys;
  std::string fault;
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > kMaxDepth) {
      fault = fmt::format("nested deeper than {} levels", kMaxDepth);
      return false;
    }
    if (event == json::parse_event_t::object_start) {
      keys.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      keys.pop_back();
    } else if (event == json::parse_event_t::key) {
      if (!keys.back().insert(parsed.get<std::string>()).second) {
        fault = "duplicate key " + shown(parsed);
      }
    }
    return true;
  };
  json out = json::parse(text.begin(), text.end(), watch, /*allow_exceptions=*/false);
  if (!fault.empty()) {
    return error(Code::kCorrupt, "{}: {}", path, fault);
  }
  if (out.is_discarded()) {
    return error(Code::kCorrupt, "{}: not valid JSON ({} bytes)", path, text.size());
  }
  if (!out.is_object()) {
    return error(Code::kCorrupt, "{}: want a JSON object, found {}", path, shown(out));
  }
  return out;
}

bool JsonFields::has(const char* name) const {
  const auto found = object_.find(name);
  return found != object_.end() && !found->is_null();
}

std::int32_t JsonFields::checked(const char* name, const json& value, IntRange range) {
  // A uint64 past the int64 range is too large as well: compare before converting.
  const bool is_huge = value.is_number_unsigned() &&
                       value.get<std::uint64_t>() > static_cast<std::uint64_t>(range.max);
  if (!value.is_number_integer() || is_huge || value.get<std::int64_t>() < range.min ||
      value.get<std::int64_t>() > range.max) {
    fail(name, fmt::format("a whole number from {} to {}", range.min, range.max), shown(value));
    return 0;
  }
  return value.get<std::int32_t>();
}

std::int32_t JsonFields::integer(const char* name, IntRange range) {
  if (!has(name)) {
    fail(name, fmt::format("a whole number from {} to {}", range.min, range.max));
    return 0;
  }
  return checked(name, object_.at(name), range);
}

std::int32_t JsonFields::integer_or(const char* name, std::int32_t fallback, IntRange range) {
  return has(name) ? integer(name, range) : fallback;
}

double JsonFields::number(const char* name, NumberRange range) {
  const std::string want = fmt::format("a number from {} to {}", range.min, range.max);
  if (!has(name)) {
    fail(name, want);
    return 0.0;
  }
  const json& value = object_.at(name);
  const double number = value.is_number() ? value.get<double>() : 0.0;
  if (!value.is_number() || !(number >= range.min && number <= range.max)) {
    fail(name, want, shown(value));
    return 0.0;
  }
  return number;
}

double JsonFields::number_or(const char* name, double fallback, NumberRange range) {
  return has(name) ? number(name, range) : fallback;
}

bool JsonFields::boolean_or(const char* name, bool fallback) {
  if (!has(name)) {
    return fallback;
  }
  const json& value = object_.at(name);
  if (!value.is_boolean()) {
    fail(name, "true or false", shown(value));
    return fallback;
  }
  return value.get<bool>();
}

std::string JsonFields::text(const char* name) {
  if (!has(name) || !object_.at(name).is_string()) {
    fail(name, "a string");
    return {};
  }
  return object_.at(name).get<std::string>();
}

std::vector<std::int32_t> JsonFields::ids(const char* name, IntRange range) {
  std::vector<std::int32_t> out;
  if (!has(name)) {
    return out;
  }
  const json& value = object_.at(name);
  if (!value.is_array()) {
    out.push_back(checked(name, value, range));
    return out;
  }
  for (const json& id : value) {
    out.push_back(checked(name, id, range));
  }
  return out;
}

void JsonFields::fail(const char* name, std::string_view want, const std::string& found,
                      Code code) {
  fail(error(code, "{}: field {}{}: want {}, found {}", path_, scope_, name, want, found));
}

void JsonFields::fail(const char* name, std::string_view want, Code code) {
  fail(name, want, has(name) ? shown(object_.at(name)) : "nothing", code);
}

void JsonFields::fail(Status status) {
  if (status_.ok()) {
    status_ = std::move(status);
  }
}

}  // namespace nibble::model
