#include "text/harmony_schema.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "text/json_depth.h"

namespace nibble::text {
namespace {

using Json = nlohmann::ordered_json;

// Recursion below is as deep as the schema, so hostile depth is refused before parsing.
constexpr int kMaxDepth = 128;

const Json* find(const Json& object, const char* key) {
  if (!object.is_object()) {
    return nullptr;
  }
  const auto it = object.find(key);
  return it == object.end() ? nullptr : &*it;
}

const std::string* find_string(const Json& object, const char* key) {
  const Json* value = find(object, key);
  return value != nullptr && value->is_string() ? value->get_ptr<const std::string*>() : nullptr;
}

const Json* find_array(const Json& object, const char* key) {
  const Json* value = find(object, key);
  return value != nullptr && value->is_array() ? value : nullptr;
}

bool is_true(const Json& object, const char* key) {
  const Json* value = find(object, key);
  return value != nullptr && value->is_boolean() && value->get<bool>();
}

bool is_enum(const Json& schema) {
  const Json* values = find_array(schema, "enum");
  return values != nullptr && !values->empty();
}

// Shortest digits that round-trip; positional between 1e-5 and 1e16, else `1.5e-7`. These are the
// spellings of the reference renderer and so of the training data.
std::string number_text(double value) {
  if (value == 0) {
    return std::signbit(value) ? "-0.0" : "0.0";
  }
  char buffer[32];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  std::string_view text(buffer, static_cast<std::size_t>(end.ptr - buffer));
  std::string out;
  if (text.front() == '-') {
    out = "-";
    text.remove_prefix(1);
  }
  const std::size_t e = text.find('e');
  std::string digits(text.substr(0, e));
  std::erase(digits, '.');
  int exponent = 0;
  const std::size_t skip = text[e + 1] == '+' ? 2 : 1;
  std::from_chars(text.data() + e + skip, text.data() + text.size(), exponent);
  const int point = exponent + 1;  // digits before the decimal point
  const int num_digits = static_cast<int>(digits.size());
  if (point > 16 || point <= -5) {
    out += digits.substr(0, 1);
    if (num_digits > 1) {
      out += "." + digits.substr(1);
    }
    return out + "e" + std::to_string(exponent);
  }
  if (point <= 0) {
    return out + "0." + std::string(static_cast<std::size_t>(-point), '0') + digits;
  }
  if (point >= num_digits) {
    return out + digits + std::string(static_cast<std::size_t>(point - num_digits), '0') + ".0";
  }
  return out + digits.substr(0, static_cast<std::size_t>(point)) + "." +
         digits.substr(static_cast<std::size_t>(point));
}

std::string compact_json(const Json& value) {
  if (value.is_number_float()) {
    const double number = value.get<double>();
    return std::isfinite(number) ? number_text(number) : "null";
  }
  if (!value.is_structured()) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  std::string out(1, value.is_object() ? '{' : '[');
  for (auto it = value.begin(); it != value.end(); ++it) {
    if (out.size() > 1) {
      out += ',';
    }
    if (value.is_object()) {
      out += compact_json(Json(it.key())) + ":";
    }
    out += compact_json(*it);
  }
  out += value.is_object() ? '}' : ']';
  return out;
}

// "default: V". A string stands in plain quotes, without them where the values are an enum.
std::string default_text(const Json& schema, const Json& value) {
  if (!value.is_string()) {
    return "default: " + compact_json(value);
  }
  const auto& text = value.get_ref<const std::string&>();
  return "default: " + (is_enum(schema) ? text : "\"" + text + "\"");
}

std::string type_text(const Json& schema, const std::string& indent);

std::string nullable_type_text(const Json& schema, const std::string& indent) {
  std::string text = type_text(schema, indent);
  if (is_true(schema, "nullable") && text.find("null") == std::string::npos) {
    text += " | null";
  }
  return text;
}

std::string trailing_comment(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) {
    out += (out.empty() ? " // " : " ") + part;
  }
  return out;
}

// Alternatives where no property name precedes them: each on a line of its own.
std::string one_of_text(const Json& variants, const std::string& indent) {
  std::string out;
  for (const Json& variant : variants) {
    out += "\n" + indent + " | " + nullable_type_text(variant, indent + "   ");
    std::vector<std::string> comments;
    if (const std::string* description = find_string(variant, "description")) {
      comments.push_back(*description);
    }
    if (const Json* value = find(variant, "default")) {
      // Here, unlike in a property, the default of an enum is written as JSON.
      comments.push_back(is_enum(variant) ? "default: " + compact_json(*value)
                                          : default_text(variant, *value));
    }
    out += trailing_comment(comments);
  }
  return out;
}

void append_examples(const Json& property, const std::string& indent, std::string& out) {
  const Json* examples = find_array(property, "examples");
  if (examples == nullptr || examples->empty()) {
    return;
  }
  out += indent + "// Examples:\n";
  for (const Json& example : *examples) {
    if (example.is_string()) {
      out += indent + "// - \"" + example.get_ref<const std::string&>() + "\"\n";
    }
  }
}

// A property whose type is a choice: one line for each variant, closed by a line with a comma.
void append_one_of_property(const std::string& name, const Json& property, const Json& variants,
                            const std::string& indent, std::string& out) {
  const std::string* description = find_string(property, "description");
  const std::string* first =
      variants.empty() ? nullptr : find_string(variants.front(), "description");
  const bool is_above = description != nullptr && (first == nullptr || *first != *description);
  if (is_above) {
    out += indent + "// " + *description + "\n";
  }
  if (const Json* value = find(property, "default")) {
    out += indent + "// " + default_text(property, *value) + "\n";
  }
  out += indent + name + ":\n";
  bool is_first = true;
  for (const Json& variant : variants) {
    std::vector<std::string> comments;
    const std::string* text = find_string(variant, "description");
    if (text != nullptr && !(is_first && is_above) &&
        (description == nullptr || *text != *description)) {
      comments.push_back(*text);
    }
    if (const Json* value = find(variant, "default")) {
      comments.push_back(default_text(variant, *value));
    }
    out += indent + " | " + nullable_type_text(variant, indent + "   ") +
           trailing_comment(comments) + "\n";
    is_first = false;
  }
  out += indent + ",\n";
}

void append_property(const std::string& name, const Json& property, const std::string& indent,
                     std::string& out) {
  if (const std::string* title = find_string(property, "title")) {
    out += indent + "// " + *title + "\n" + indent + "//\n";
  }
  const Json* one_of = find(property, "oneOf");
  const std::string* description = find_string(property, "description");
  if (one_of == nullptr && description != nullptr) {
    out += indent + "// " + *description + "\n";
  }
  append_examples(property, indent, out);
  if (one_of != nullptr && one_of->is_array()) {
    append_one_of_property(name, property, *one_of, indent, out);
    return;
  }
  out += indent + name + ": " + nullable_type_text(property, indent + "    ") + ",";
  const Json* value = find(property, "default");
  if (one_of == nullptr && value != nullptr) {
    out += " // " + default_text(property, *value);
  }
  out += "\n";
}

bool is_required(const Json& schema, const std::string& key) {
  const Json* required = find_array(schema, "required");
  return required != nullptr && std::any_of(required->begin(), required->end(),
                                            [&](const Json& name) { return name == key; });
}

std::string object_text(const Json& schema, const std::string& indent) {
  std::string out;
  if (const std::string* description = find_string(schema, "description")) {
    out += indent + "// " + *description + "\n";
  }
  out += "{\n";
  const Json* properties = find(schema, "properties");
  if (properties != nullptr && properties->is_object()) {
    for (auto it = properties->begin(); it != properties->end(); ++it) {
      const std::string name = it.key() + (is_required(schema, it.key()) ? "" : "?");
      append_property(name, *it, indent, out);
    }
  }
  return out + indent + "}";
}

std::string string_text(const Json& schema) {
  const Json* values = find_array(schema, "enum");
  std::string out;
  for (const Json& value : values == nullptr ? Json::array() : *values) {
    if (value.is_string()) {
      out += (out.empty() ? "\"" : " | \"") + value.get_ref<const std::string&>() + "\"";
    }
  }
  return out.empty() ? "string" : out;
}

std::string type_list_text(const Json& types) {
  std::string out;
  for (const Json& type : types) {
    if (type.is_string()) {
      const auto& name = type.get_ref<const std::string&>();
      out += (out.empty() ? "" : " | ") + (name == "integer" ? std::string("number") : name);
    }
  }
  return out;
}

std::string type_text(const Json& schema, const std::string& indent) {
  if (const Json* variants = find_array(schema, "oneOf")) {
    return one_of_text(*variants, indent);
  }
  if (const Json* types = find_array(schema, "type")) {
    std::string text = type_list_text(*types);
    return text.empty() ? "any" : text;
  }
  const std::string* type = find_string(schema, "type");
  if (type == nullptr) {
    return "any";
  }
  if (*type == "object") {
    return object_text(schema, indent);
  }
  if (*type == "string") {
    return string_text(schema);
  }
  if (*type == "number" || *type == "integer") {
    return "number";
  }
  if (*type == "boolean") {
    return "boolean";
  }
  if (*type == "array") {
    const Json* items = find(schema, "items");
    return items == nullptr ? "Array<any>" : type_text(*items, indent) + "[]";
  }
  return "any";
}

}  // namespace

std::string schema_to_typescript(std::string_view json) {
  if (is_nested_deeper(json, kMaxDepth)) {
    return "any";
  }
  const Json schema = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  return schema.is_discarded() ? "any" : type_text(schema, "");
}

}  // namespace nibble::text
