// Reads the fields of a JSON object, each checked. The first fault is kept, with the path of the
// field; what is read afterwards counts for nothing. A field that is null counts as absent.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/json.h"

namespace nibble::server {

class Fields {
 public:
  // `path` precedes the names in messages: "messages[0]."; `fault` is shared by nested objects.
  Fields(const Json& object, std::string path, std::optional<ApiError>& fault)
      : object_(object), path_(std::move(path)), fault_(fault) {}

  bool has(const char* name) const { return find(name) != nullptr; }
  std::optional<double> real(const char* name, double low, double high);
  std::optional<std::int64_t> integer(const char* name, std::int64_t low, std::int64_t high);
  std::optional<bool> boolean(const char* name);
  std::optional<std::string> text(const char* name);
  std::string required_text(const char* name);
  // Null pointers when absent or of another type.
  const Json* array(const char* name);
  const Json* object(const char* name);
  const Json* any(const char* name) const { return find(name); }
  std::optional<std::string> choice(const char* name, std::initializer_list<const char*> choices);
  std::vector<std::int32_t> ids(const char* name);

  // Array elements: ints, each within 32 bits.
  std::vector<std::int32_t> ids_of(const Json& array, const std::string& path);

  // The object of that name, with this one's fault; nothing when absent or of another type.
  std::optional<Fields> inner(const char* name);
  // Calls `read` with the fields of each object of an array, up to the first fault.
  template <typename Read>
  void each_object(const char* name, Read read) {
    const Json* list = array(name);
    for (std::size_t i = 0; list != nullptr && i < list->size() && !failed(); ++i) {
      if (std::optional<Fields> one = object_at(name, (*list)[i], i)) {
        read(*one);
      }
    }
  }

  std::string path(const char* name) const { return path_ + name; }
  void fail(const char* name, const std::string& wanted);  // "want ..., found <value>"
  void refuse(ApiError error);
  // Present, and not null, false, empty or zero: a clear refusal.
  void refuse_unless_idle(const char* name, const char* why);
  bool failed() const { return fault_.has_value(); }

 private:
  const Json* find(const char* name) const;
  std::optional<Fields> object_at(const char* name, const Json& value, std::size_t index);

  const Json& object_;
  std::string path_;
  std::optional<ApiError>& fault_;
};

// A value as an error message shows it: short, and never a text of the user's.
std::string shown(const Json& value);

}  // namespace nibble::server
