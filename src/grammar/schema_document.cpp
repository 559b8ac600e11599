#include "grammar/schema_document.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/error.h"
#include "grammar/json_schema.h"
#include "text/json_depth.h"

namespace nibble::grammar {
namespace {

constexpr int kMaxHops = 32;  // through $ref and single unions

std::string escaped(std::string_view key) {
  std::string out;
  for (const char c : key) {
    out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  }
  return out;
}

std::string unescaped(std::string_view token) {
  std::string out;
  for (std::size_t i = 0; i < token.size(); ++i) {
    const bool is_escape = token[i] == '~' && i + 1 < token.size();
    if (is_escape) {
      ++i;
      out += token[i] == '1' ? '/' : '~';
    } else {
      out += token[i];
    }
  }
  return out;
}

const Json* step(const Json& json, const std::string& token) {
  if (json.is_object()) {
    return find(json, token);
  }
  const bool is_index =
      json.is_array() && !token.empty() && token.size() < 8 &&
      std::all_of(token.begin(), token.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!is_index) {
    return nullptr;
  }
  const auto index = static_cast<std::size_t>(std::stoul(token));
  return index < json.size() ? &json[index] : nullptr;
}

// The constants of a schema, or none if it does not list any.
std::vector<Json> constants_of(const Json& schema) {
  if (const Json* constant = find(schema, "const")) {
    return {*constant};
  }
  const Json* values = find(schema, "enum");
  return values != nullptr && values->is_array() ? values->get<std::vector<Json>>()
                                                 : std::vector<Json>();
}

bool are_disjoint_constants(const Json& a, const Json& b) {
  const std::vector<Json> first = constants_of(a);
  const std::vector<Json> second = constants_of(b);
  return !first.empty() && !second.empty() &&
         std::find_first_of(first.begin(), first.end(), second.begin(), second.end()) ==
             first.end();
}

bool requires_property(const Json& schema, const std::string& name) {
  const Json* required = find(schema, "required");
  return required != nullptr && required->is_array() &&
         std::find(required->begin(), required->end(), Json(name)) != required->end();
}

bool has_discriminator(const Json& a, const Json& b) {
  const Json* properties = find(a, "properties");
  const Json* others = find(b, "properties");
  if (properties == nullptr || others == nullptr || !properties->is_object() ||
      !others->is_object()) {
    return false;
  }
  for (const auto& [name, schema] : properties->items()) {
    const Json* other = find(*others, name);
    if (other != nullptr && requires_property(a, name) && requires_property(b, name) &&
        are_disjoint_constants(schema, *other)) {
      return true;
    }
  }
  return false;
}

unsigned types_of_values(const std::vector<Json>& values) {
  unsigned types = 0;
  for (const Json& value : values) {
    for (unsigned type = kNull; type <= kNumber; type *= 2) {
      types |= has_type(value, type) ? type : 0U;
    }
  }
  return types;
}

SchemaNode follow(const SchemaDocument& document, SchemaNode node) {
  for (int hop = 0; hop < kMaxHops && find(*node.json, "$ref") != nullptr; ++hop) {
    Result<SchemaNode> target = document.resolve(node);
    if (!target) {
      break;
    }
    node = std::move(*target);
  }
  return node;
}

}  // namespace

KeywordKind keyword_kind(std::string_view keyword) {
  static const std::map<std::string_view, KeywordKind> kKinds = {
      {"type", KeywordKind::kType},
      {"enum", KeywordKind::kConstant},
      {"const", KeywordKind::kConstant},
      {"$ref", KeywordKind::kCombining},
      {"anyOf", KeywordKind::kCombining},
      {"oneOf", KeywordKind::kCombining},
      {"allOf", KeywordKind::kCombining},
      {"properties", KeywordKind::kObject},
      {"required", KeywordKind::kObject},
      {"additionalProperties", KeywordKind::kObject},
      {"minProperties", KeywordKind::kObject},
      {"maxProperties", KeywordKind::kObject},
      {"items", KeywordKind::kArray},
      {"prefixItems", KeywordKind::kArray},
      {"minItems", KeywordKind::kArray},
      {"maxItems", KeywordKind::kArray},
      {"uniqueItems", KeywordKind::kArray},
      {"minLength", KeywordKind::kString},
      {"maxLength", KeywordKind::kString},
      {"pattern", KeywordKind::kString},
      {"format", KeywordKind::kString},
      {"minimum", KeywordKind::kNumber},
      {"maximum", KeywordKind::kNumber},
      {"exclusiveMinimum", KeywordKind::kNumber},
      {"exclusiveMaximum", KeywordKind::kNumber},
  };
  static constexpr std::string_view kAnnotations[] = {
      "title",       "description",   "default",         "examples",        "$comment",
      "$schema",     "deprecated",    "readOnly",        "writeOnly",       "$defs",
      "definitions", "discriminator", "contentEncoding", "contentMediaType"};
  if (const auto found = kKinds.find(keyword); found != kKinds.end()) {
    return found->second;
  }
  const bool is_annotation = keyword.starts_with("x-") ||
                             std::find(std::begin(kAnnotations), std::end(kAnnotations), keyword) !=
                                 std::end(kAnnotations);
  return is_annotation ? KeywordKind::kAnnotation : KeywordKind::kUnknown;
}

Result<SchemaDocument> SchemaDocument::parse(std::string_view text) {
  if (text.size() > kMaxSchemaBytes) {
    return error(Code::kInvalidArgument, "#: want at most {} bytes of schema, found {}",
                 kMaxSchemaBytes, text.size());
  }
  if (text::is_nested_deeper(text, kMaxSchemaDepth)) {
    return error(Code::kInvalidArgument, "#: want a schema nested at most {} deep, found more",
                 kMaxSchemaDepth);
  }
  SchemaDocument document;
  document.json_ = Json::parse(text, nullptr, false);
  if (document.json_.is_discarded()) {
    return error(Code::kInvalidArgument, "#: want a JSON schema, found {} bytes that are not JSON",
                 text.size());
  }
  return document;
}

Result<SchemaNode> SchemaDocument::resolve(const SchemaNode& from) const {
  const Json& ref = (*from.json)["$ref"];
  const std::string text = ref.is_string() ? ref.get<std::string>() : ref.dump();
  const bool is_local = ref.is_string() && (text == "#" || text.starts_with("#/")) &&
                        text.find('%') == std::string::npos;
  if (!is_local) {
    return error(Code::kInvalidArgument, "{}/$ref: want \"#\" or \"#/...\" without %, found {}",
                 from.path, text);
  }
  SchemaNode node = root();
  for (std::size_t at = 1; at < text.size();) {
    const std::size_t end = std::min(text.find('/', at + 1), text.size());
    const std::string token = unescaped(std::string_view(text).substr(at + 1, end - at - 1));
    const Json* next = step(*node.json, token);
    if (next == nullptr) {
      return error(Code::kInvalidArgument, "{}/$ref: {} is not in the schema", from.path, text);
    }
    node = {next, node.path + "/" + escaped(token)};
    at = end;
  }
  return node;
}

SchemaNode child(const SchemaNode& node, std::string_view key) {
  return {find(*node.json, key), node.path + "/" + escaped(key)};
}

SchemaNode child(const SchemaNode& node, std::string_view key, std::string_view sub_key) {
  return child(child(node, key), sub_key);
}

SchemaNode child(const SchemaNode& node, std::string_view key, std::size_t index) {
  const SchemaNode list = child(node, key);
  return {&(*list.json)[index], list.path + "/" + std::to_string(index)};
}

const Json* find(const Json& object, std::string_view key) {
  if (!object.is_object()) {
    return nullptr;
  }
  const auto at = object.find(std::string(key));
  return at == object.end() ? nullptr : &*at;
}

unsigned type_named(std::string_view name) {
  static constexpr std::pair<std::string_view, unsigned> kTypes[] = {
      {"null", kNull},     {"boolean", kBoolean}, {"object", kObject},           {"array", kArray},
      {"string", kString}, {"integer", kInteger}, {"number", kNumber | kInteger}};
  for (const auto& [known, type] : kTypes) {
    if (known == name) {
      return type;
    }
  }
  return 0;
}

Result<unsigned> types_of(const SchemaNode& node) {
  unsigned types = 0;
  if (const Json* type = find(*node.json, "type")) {
    const std::vector<Json> names =
        type->is_array() ? type->get<std::vector<Json>>() : std::vector<Json>{*type};
    for (const Json& name : names) {
      const unsigned one = name.is_string() ? type_named(name.get_ref<const std::string&>()) : 0;
      if (one == 0) {
        return error(Code::kInvalidArgument, "{}/type: want a JSON type, found {}", node.path,
                     name.dump());
      }
      types |= one;
    }
    if (types == 0) {
      return error(Code::kInvalidArgument, "{}/type: want at least 1 type, found 0", node.path);
    }
    return types;
  }
  for (const auto& [keyword, value] : node.json->items()) {
    unsigned one = 0;
    switch (keyword_kind(keyword)) {
      case KeywordKind::kObject: one = kObject; break;
      case KeywordKind::kArray: one = kArray; break;
      case KeywordKind::kString: one = kString; break;
      case KeywordKind::kNumber: one = kNumber | kInteger; break;
      default: break;
    }
    if (one != 0 && types != 0 && one != types) {
      return error(Code::kInvalidArgument,
                   "{}: want a \"type\", found '{}' beside keywords of other types", node.path,
                   keyword);
    }
    types |= one;
  }
  return types;
}

bool has_type(const Json& value, unsigned types) {
  switch (value.type()) {
    case Json::value_t::null: return (types & kNull) != 0;
    case Json::value_t::boolean: return (types & kBoolean) != 0;
    case Json::value_t::object: return (types & kObject) != 0;
    case Json::value_t::array: return (types & kArray) != 0;
    case Json::value_t::string: return (types & kString) != 0;
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned: return (types & kInteger) != 0;
    case Json::value_t::number_float: {
      const double number = value.get<double>();
      const bool is_whole = number == std::floor(number);
      return (types & (is_whole ? kNumber | kInteger : kNumber)) != 0;
    }
    default: return false;
  }
}

bool are_disjoint(const SchemaDocument& document, const SchemaNode& a, const SchemaNode& b) {
  const SchemaNode first = follow(document, a);
  const SchemaNode second = follow(document, b);
  if (!first.json->is_object() || !second.json->is_object()) {
    return false;
  }
  const auto admitted = [](const SchemaNode& node) -> unsigned {
    const std::vector<Json> constants = constants_of(*node.json);
    if (!constants.empty()) {
      return types_of_values(constants);
    }
    // Without "type", values of other types are valid whatever the keywords say.
    const Result<unsigned> types = types_of(node);
    return types && find(*node.json, "type") != nullptr ? *types : ~0U;
  };
  return (admitted(first) & admitted(second)) == 0 ||
         are_disjoint_constants(*first.json, *second.json) ||
         has_discriminator(*first.json, *second.json);
}

}  // namespace nibble::grammar
