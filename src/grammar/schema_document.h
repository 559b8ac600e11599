// A parsed JSON schema: places in it, and what each keyword is.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "nibble/status.h"

namespace nibble::grammar {

using Json = nlohmann::ordered_json;  // properties keep their order

struct SchemaNode {
  const Json* json = nullptr;
  std::string path;  // "#/properties/a"
};

enum class KeywordKind : unsigned char {
  kUnknown,
  kAnnotation,  // says nothing about values
  kType,
  kConstant,   // enum, const
  kCombining,  // $ref, anyOf, oneOf, allOf
  kObject,
  kArray,
  kString,
  kNumber,
};
KeywordKind keyword_kind(std::string_view keyword);

// NOLINTNEXTLINE(bugprone-exception-escape): moving Json throws nothing
class SchemaDocument {
 public:
  // kInvalidArgument: too long, nested too deep, not JSON.
  static Result<SchemaDocument> parse(std::string_view text);

  SchemaNode root() const { return {&json_, "#"}; }
  // The target of a "$ref" that stands at `from`. kInvalidArgument when it is not in this document.
  Result<SchemaNode> resolve(const SchemaNode& from) const;

 private:
  Json json_;
};

SchemaNode child(const SchemaNode& node, std::string_view key);
SchemaNode child(const SchemaNode& node, std::string_view key, std::string_view sub_key);
SchemaNode child(const SchemaNode& node, std::string_view key, std::size_t index);
const Json* find(const Json& object, std::string_view key);  // null if absent

// JSON types of values that a schema may admit: at most those, perhaps fewer.
enum JsonType : unsigned {
  kNull = 1,
  kBoolean = 2,
  kObject = 4,
  kArray = 8,
  kString = 16,
  kInteger = 32,
  kNumber = 64,
};
// 0 for a name that is no type.
unsigned type_named(std::string_view name);
// The types that "type" lists, or, without one, the type that the keywords speak of; 0 if they say
// nothing. kInvalidArgument: no such type, or keywords of several types.
Result<unsigned> types_of(const SchemaNode& node);
bool has_type(const Json& value, unsigned types);

// True when no value can be valid under both: their types differ, their constants do, or both
// demand a property whose constants differ. False when that cannot be seen so.
bool are_disjoint(const SchemaDocument& document, const SchemaNode& a, const SchemaNode& b);

}  // namespace nibble::grammar
