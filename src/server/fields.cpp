#include "server/fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>

namespace nibble::server {

std::string shown(const Json& value) {
  switch (value.type()) {
    case Json::value_t::string:
      return fmt::format("a string of {} bytes", value.get_ref<const std::string&>().size());
    case Json::value_t::array: return fmt::format("an array of {}", value.size());
    case Json::value_t::object: return "an object";
    default: return dump(value);
  }
}

const Json* Fields::find(const char* name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void Fields::refuse(ApiError error) {
  if (!fault_.has_value()) {
    fault_ = std::move(error);
  }
}

void Fields::fail(const char* name, const std::string& wanted) {
  const Json* value = find(name);
  refuse(bad_request(path(name), fmt::format("{}: want {}, found {}", path(name), wanted,
                                             value == nullptr ? "nothing" : shown(*value))));
}

std::optional<double> Fields::real(const char* name, double low, double high) {
  const Json* value = find(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  const double number = value->is_number() ? value->get<double>() : low - 1.0;
  if (!(number >= low && number <= high)) {
    fail(name, fmt::format("a number from {} to {}", low, high));
    return std::nullopt;
  }
  return number;
}

std::optional<std::int64_t> Fields::integer(const char* name, std::int64_t low, std::int64_t high) {
  const Json* value = find(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  const bool is_huge =
      value->is_number_unsigned() &&
      value->get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()};
  if (!value->is_number_integer() || is_huge || value->get<std::int64_t>() < low ||
      value->get<std::int64_t>() > high) {
    fail(name, fmt::format("a whole number from {} to {}", low, high));
    return std::nullopt;
  }
  return value->get<std::int64_t>();
}

std::optional<bool> Fields::boolean(const char* name) {
  const Json* value = find(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (!value->is_boolean()) {
    fail(name, "true or false");
    return std::nullopt;
  }
  return value->get<bool>();
}

std::optional<std::string> Fields::text(const char* name) {
  const Json* value = find(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (!value->is_string()) {
    fail(name, "a string");
    return std::nullopt;
  }
  return value->get<std::string>();
}

std::string Fields::required_text(const char* name) {
  if (!has(name)) {
    fail(name, "a string");
  }
  return text(name).value_or("");
}

const Json* Fields::array(const char* name) {
  const Json* value = find(name);
  if (value != nullptr && !value->is_array()) {
    fail(name, "an array");
    return nullptr;
  }
  return value;
}

const Json* Fields::object(const char* name) {
  const Json* value = find(name);
  if (value != nullptr && !value->is_object()) {
    fail(name, "an object");
    return nullptr;
  }
  return value;
}

std::optional<Fields> Fields::inner(const char* name) {
  const Json* value = object(name);
  return value == nullptr ? std::nullopt : std::optional(Fields(*value, path(name) + ".", fault_));
}

std::optional<Fields> Fields::object_at(const char* name, const Json& value, std::size_t index) {
  const std::string where = fmt::format("{}[{}]", path(name), index);
  if (!value.is_object()) {
    refuse(bad_request(where, fmt::format("{}: want an object, found {}", where, shown(value))));
    return std::nullopt;
  }
  return Fields(value, where + ".", fault_);
}

std::optional<std::string> Fields::choice(const char* name,
                                          std::initializer_list<const char*> choices) {
  const Json* value = find(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  for (const char* one : choices) {
    if (value->is_string() && *value == one) {
      return std::string(one);
    }
  }
  fail(name, fmt::format("{}", fmt::join(choices, " or ")));
  return std::nullopt;
}

std::vector<std::int32_t> Fields::ids_of(const Json& array, const std::string& where) {
  std::vector<std::int32_t> out;
  out.reserve(array.size());
  for (const Json& id : array) {
    // Above what fits, the engine could not even say that it is outside the vocabulary.
    const bool is_id =
        id.is_number_integer() && id >= 0 && id <= std::numeric_limits<std::int32_t>::max();
    if (!is_id) {
      refuse(bad_request(where, fmt::format("{}: want token ids, found {}", where, shown(id))));
      return {};
    }
    out.push_back(id.get<std::int32_t>());
  }
  return out;
}

std::vector<std::int32_t> Fields::ids(const char* name) {
  const Json* value = array(name);
  return value == nullptr ? std::vector<std::int32_t>() : ids_of(*value, path(name));
}

void Fields::refuse_unless_idle(const char* name, const char* why) {
  const Json* value = find(name);
  const bool is_idle = value == nullptr || *value == false || *value == 0 || *value == "" ||
                       ((value->is_array() || value->is_object()) && value->empty());
  if (!is_idle) {
    refuse(not_supported(path(name), fmt::format("{}: {}", path(name), why)));
  }
}

}  // namespace nibble::server
