#include "grammar/json_schema.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "grammar/json_text.h"
#include "grammar/number_text.h"
#include "grammar/regex.h"
#include "grammar/schema_document.h"
#include "grammar/string_format.h"

namespace nibble::grammar {
namespace {

constexpr std::size_t kMaxAlternatives = 256;
constexpr std::size_t kMaxProperties = 1024;
constexpr std::uint32_t kMaxCount = 1U << 30U;

template <typename... Args>
Status fault(const SchemaNode& node, fmt::format_string<Args...> format, Args&&... args) {
  return error(Code::kInvalidArgument, "{}: {}", node.path,
               fmt::format(format, std::forward<Args>(args)...));
}

struct Limits {
  std::uint32_t least = 0;
  std::uint32_t most = kNoLimit;
};

// "minX" and "maxX" of a schema.
Result<Limits> limits_of(const SchemaNode& node, const char* least, const char* most) {
  Limits limits;
  for (const auto& [key, target] :
       {std::pair(least, &limits.least), std::pair(most, &limits.most)}) {
    const SchemaNode value = child(node, key);
    if (value.json == nullptr) {
      continue;
    }
    if (!value.json->is_number_unsigned() || value.json->get<std::uint64_t>() > kMaxCount) {
      return fault(value, "want a whole number from 0 to {}, found {}", kMaxCount,
                   value.json->dump());
    }
    *target = value.json->get<std::uint32_t>();
  }
  if (limits.least > limits.most) {
    return fault(node, "want {} of at most {}, {}, found {}", least, most, limits.most,
                 limits.least);
  }
  return limits;
}

// Subschemas are compiled from a list and not by recursion, each place once, so $ref may form
// circles.
class SchemaCompiler {
 public:
  SchemaCompiler(GrammarBuilder& builder, JsonRules& rules, const SchemaDocument& document)
      : builder_(builder), rules_(rules), document_(document) {}

  Result<RuleId> run() {
    const RuleId rule = rule_of(document_.root());
    while (!work_.empty()) {
      const auto [node, target] = work_.front();
      work_.pop_front();
      NIBBLE_RETURN_IF_ERROR(compile(node, target));
      if (builder_.is_too_large()) {
        return fault(node, "the schema is too large: want at most {} states",
                     GrammarBuilder::kMaxStates);
      }
    }
    return rule;
  }

 private:
  RuleId rule_of(const SchemaNode& node) {
    const auto [at, is_new] = known_.try_emplace(node.path, 0);
    if (is_new) {
      at->second = builder_.add_rule();
      work_.emplace_back(node, at->second);
    }
    return at->second;
  }

  Status compile(const SchemaNode& node, RuleId rule) {
    if (node.json->is_boolean()) {
      if (!node.json->get<bool>()) {
        return fault(node, "the schema false admits no value");
      }
      rules_.define_one_of(rule, {rules_.any_value()});
      return {};
    }
    if (!node.json->is_object()) {
      return fault(node, "want a schema, found {}", node.json->type_name());
    }
    NIBBLE_RETURN_IF_ERROR(check_keywords(node));
    if (const Json* combined = nullptr; has_kind(node, KeywordKind::kCombining)) {
      (void)combined;
      return compile_combined(node, rule);
    }
    if (has_kind(node, KeywordKind::kConstant)) {
      return compile_constants(node, rule);
    }
    NIBBLE_ASSIGN_OR_RETURN(const unsigned types, types_of(node));
    return compile_types(node, types, rule);
  }

  static bool has_kind(const SchemaNode& node, KeywordKind kind) {
    const auto items = node.json->items();
    return std::any_of(items.begin(), items.end(),
                       [kind](const auto& item) { return keyword_kind(item.key()) == kind; });
  }

  // Every keyword must be known, and none may stand beside one that already decides everything.
  static Status check_keywords(const SchemaNode& node) {
    std::string decisive;
    std::string other;
    for (const auto& [keyword, value] : node.json->items()) {
      const KeywordKind kind = keyword_kind(keyword);
      const bool is_root_name = keyword == "$id" && node.path == "#";
      if (kind == KeywordKind::kUnknown && !is_root_name) {
        return fault(node, "keyword '{}' is not supported", keyword);
      }
      if (kind == KeywordKind::kCombining || kind == KeywordKind::kConstant) {
        if (!decisive.empty()) {
          return fault(node, "'{}' beside '{}' is not supported", keyword, decisive);
        }
        decisive = keyword;
      } else if (kind != KeywordKind::kAnnotation && kind != KeywordKind::kUnknown) {
        other = keyword == "type" && other.empty() ? "type" : keyword;
      }
    }
    const bool is_constant = !decisive.empty() && keyword_kind(decisive) == KeywordKind::kConstant;
    const bool may_stand = other.empty() || (is_constant && other == "type");
    if (!decisive.empty() && !may_stand) {
      return fault(node, "'{}' beside '{}' is not supported", other, decisive);
    }
    return {};
  }

  Status compile_combined(const SchemaNode& node, RuleId rule) {
    if (find(*node.json, "$ref") != nullptr) {
      NIBBLE_ASSIGN_OR_RETURN(const SchemaNode target, document_.resolve(node));
      rules_.define_one_of(rule, {rule_of(target)});
      return {};
    }
    const auto is_there = [&](const char* key) { return find(*node.json, key) != nullptr; };
    const char* key = is_there("anyOf") ? "anyOf" : is_there("oneOf") ? "oneOf" : "allOf";
    const SchemaNode list = child(node, key);
    const std::size_t most = key == std::string_view("allOf") ? 1 : kMaxAlternatives;
    if (!list.json->is_array() || list.json->empty() || list.json->size() > most) {
      return fault(
          list, "want a list of 1 to {} schemas, found {}", most,
          list.json->is_array() ? std::to_string(list.json->size()) : list.json->type_name());
    }
    std::vector<SchemaNode> alternatives;
    std::vector<RuleId> rules;
    for (std::size_t i = 0; i < list.json->size(); ++i) {
      alternatives.push_back(child(node, key, i));
      rules.push_back(rule_of(alternatives.back()));
    }
    if (is_there("oneOf")) {
      NIBBLE_RETURN_IF_ERROR(check_exclusive(alternatives));
    }
    rules_.define_one_of(rule, rules);
    return {};
  }

  Status check_exclusive(const std::vector<SchemaNode>& alternatives) const {
    for (std::size_t i = 0; i < alternatives.size(); ++i) {
      for (std::size_t j = i + 1; j < alternatives.size(); ++j) {
        if (!are_disjoint(document_, alternatives[i], alternatives[j])) {
          return fault(
              alternatives[j],
              "cannot tell that alternatives {} and {} of oneOf exclude each other (by type, "
              "constants, or a required property with constants); use anyOf",
              i, j);
        }
      }
    }
    return {};
  }

  Status compile_constants(const SchemaNode& node, RuleId rule) {
    unsigned types = ~0U;
    if (find(*node.json, "type") != nullptr) {
      NIBBLE_ASSIGN_OR_RETURN(types, types_of(node));
    }
    std::vector<Json> values;
    if (const Json* constant = find(*node.json, "const")) {
      values.push_back(*constant);
    } else if (const Json& list = (*node.json)["enum"]; list.is_array()) {
      values.assign(list.begin(), list.end());
    }
    std::vector<std::string> texts;
    for (const Json& value : values) {
      if (has_type(value, types)) {
        texts.push_back(text_of(value));
      }
    }
    if (texts.empty()) {
      return fault(node, "want at least 1 constant of the type, found 0");
    }
    const std::optional<Dfa> dfa = any_of(texts);
    return define(node, rule, dfa);
  }

  // One spelling: no white space, characters as they are.
  static std::string text_of(const Json& value) {
    return value.is_string() ? json_string(value.get_ref<const std::string&>()) : value.dump();
  }

  Status define(const SchemaNode& node, RuleId rule, const std::optional<Dfa>& dfa) {
    if (!dfa) {
      return fault(node, "too large: want at most {} states", kMaxDfaStates);
    }
    if (dfa->is_empty()) {
      return fault(node, "no value can satisfy it");
    }
    builder_.define(rule, *dfa);
    return {};
  }

  Status compile_types(const SchemaNode& node, unsigned types, RuleId rule) {
    if (types == 0) {
      rules_.define_one_of(rule, {rules_.any_value()});
      return {};
    }
    std::vector<RuleId> parts;
    const auto part = [&] {
      parts.push_back(builder_.add_rule());
      return parts.back();
    };
    if ((types & kObject) != 0) {
      NIBBLE_RETURN_IF_ERROR(compile_object(node, part()));
    }
    if ((types & kArray) != 0) {
      NIBBLE_RETURN_IF_ERROR(compile_array(node, part()));
    }
    if ((types & kString) != 0) {
      NIBBLE_RETURN_IF_ERROR(compile_string(node, part()));
    }
    if ((types & (kInteger | kNumber)) != 0) {
      NIBBLE_RETURN_IF_ERROR(compile_number(node, (types & kNumber) == 0, part()));
    }
    if ((types & kBoolean) != 0) {
      parts.push_back(rules_.literals({"true", "false"}));
    }
    if ((types & kNull) != 0) {
      parts.push_back(rules_.literals({"null"}));
    }
    rules_.define_one_of(rule, parts);
    return {};
  }

  Status compile_number(const SchemaNode& node, bool is_integer, RuleId rule) {
    NumberRange range{.is_integer = is_integer, .least = {}, .most = {}};
    const auto read = [&](const char* key, bool is_exclusive,
                          std::optional<Bound>& bound) -> Status {
      const SchemaNode value = child(node, key);
      if (value.json == nullptr) {
        return {};
      }
      if (!value.json->is_number()) {
        return fault(value, "want a number, found {}", value.json->dump());
      }
      if (bound) {
        return fault(value, "an inclusive and an exclusive bound together are not supported");
      }
      bound = Bound{value.json->dump(), is_exclusive};
      return {};
    };
    NIBBLE_RETURN_IF_ERROR(read("minimum", false, range.least));
    NIBBLE_RETURN_IF_ERROR(read("exclusiveMinimum", true, range.least));
    NIBBLE_RETURN_IF_ERROR(read("maximum", false, range.most));
    NIBBLE_RETURN_IF_ERROR(read("exclusiveMaximum", true, range.most));
    const Result<Dfa> dfa = number_text(range);
    if (!dfa) {
      return fault(node, "{}", dfa.error().message());
    }
    return define(node, rule, *dfa);
  }

  Status compile_string(const SchemaNode& node, RuleId rule) {
    NIBBLE_ASSIGN_OR_RETURN(const Limits limits, limits_of(node, "minLength", "maxLength"));
    std::vector<Dfa> contents;
    for (const char* key : {"pattern", "format"}) {
      const SchemaNode value = child(node, key);
      if (value.json == nullptr) {
        continue;
      }
      if (!value.json->is_string()) {
        return fault(value, "want a string, found {}", value.json->dump());
      }
      const auto& text = value.json->get_ref<const std::string&>();
      const bool is_format = key == std::string_view("format");
      const std::string_view pattern = is_format ? format_pattern(text) : text;
      if (is_format && pattern.empty()) {
        return fault(value, "want one of {}, found '{}'", supported_formats(), text);
      }
      Result<Dfa> content = regex_content(pattern);
      if (!content) {
        return fault(value, "{}", content.error().message());
      }
      contents.push_back(std::move(*content));
    }
    if (contents.empty()) {
      rules_.define_one_of(rule, {rules_.string(limits.least, limits.most)});
      return {};
    }
    return define_pattern(node, limits, std::move(contents), rule);
  }

  Status define_pattern(const SchemaNode& node, const Limits& limits, std::vector<Dfa> contents,
                        RuleId rule) {
    std::optional<Dfa> whole = std::move(contents.front());
    if (contents.size() > 1) {
      whole = combine(*whole, contents.back(), Keep::kInBoth);
    }
    if (whole && (limits.least > 0 || limits.most < kNoLimit)) {
      const std::optional<Dfa> length = string_content(limits.least, limits.most);
      whole = length ? combine(*whole, *length, Keep::kInBoth) : std::nullopt;
    }
    if (whole) {
      whole = in_quotes(*whole);
    }
    return define(node, rule, whole);
  }

  Status compile_array(const SchemaNode& node, RuleId rule);
  Status compile_object(const SchemaNode& node, RuleId rule);
  struct Property {
    std::string name;
    RuleId value;
    bool is_required;
  };
  struct ObjectShape {
    std::vector<Property> properties;
    std::optional<RuleId> additional;
    std::uint32_t num_required = 0;
    Limits further;  // how many of `additional`
  };
  Result<ObjectShape> object_shape(const SchemaNode& node);
  Status read_properties(const SchemaNode& node, ObjectShape& shape);
  Status read_count(const SchemaNode& node, ObjectShape& shape) const;
  Result<RuleId> further_key(const SchemaNode& node, const ObjectShape& shape);
  void define_object(const ObjectShape& shape, std::optional<RuleId> further_key, RuleId rule);

  GrammarBuilder& builder_;
  JsonRules& rules_;
  const SchemaDocument& document_;
  std::map<std::string, RuleId> known_;  // by path
  std::deque<std::pair<SchemaNode, RuleId>> work_;
};

// A state for each place among the prefix items and one behind further items. No closing bracket is
// shut by a guard where an item may turn out to be impossible: behind an item, another can follow.
Status SchemaCompiler::compile_array(const SchemaNode& node, RuleId rule) {
  NIBBLE_ASSIGN_OR_RETURN(const Limits limits, limits_of(node, "minItems", "maxItems"));
  if (const Json* unique = find(*node.json, "uniqueItems"); unique && *unique != Json(false)) {
    return fault(node, "keyword 'uniqueItems' is not supported");
  }
  std::vector<RuleId> prefix;
  if (const SchemaNode list = child(node, "prefixItems"); list.json != nullptr) {
    if (!list.json->is_array()) {
      return fault(list, "want a list of schemas, found {}", list.json->type_name());
    }
    for (std::size_t i = 0; i < std::min<std::size_t>(list.json->size(), limits.most); ++i) {
      prefix.push_back(rule_of(child(node, "prefixItems", i)));
    }
  }
  std::optional<RuleId> item;
  const SchemaNode items = child(node, "items");
  const auto num_prefix = static_cast<std::uint32_t>(prefix.size());
  const bool may_go_on = items.json == nullptr || *items.json != Json(false);
  if (may_go_on && num_prefix < limits.most) {
    item = items.json == nullptr ? rules_.any_value() : rule_of(items);
  }
  if (!item && num_prefix < limits.least) {
    return fault(node, "want at least {} items, but only {} are admitted", limits.least,
                 num_prefix);
  }
  const StateId end = builder_.add_state(rule);
  builder_.accept(end);
  const auto add_end = [&](StateId from, Guard guard) {
    builder_.add_literal(rules_.skip(from, rule, guard), "]", end);
  };
  const StateId open = builder_.add_literal(builder_.start_of(rule), "[");
  const StateId loop = builder_.add_state(rule);  // behind an item that is not in the prefix
  StateId at = open;
  for (std::uint32_t i = 0; i <= num_prefix; ++i) {
    if (i >= limits.least) {
      add_end(at, {});
    }
    const StateId before = rules_.skip(i == 0 ? at : builder_.add_literal(at, ","), rule);
    if (i < num_prefix) {
      const StateId next = builder_.add_state(rule);
      builder_.add_call(before, {.rule = prefix[i], .target = next, .counts = true, .guard = {}});
      at = next;
    } else if (item) {
      builder_.add_call(before, {.rule = *item, .target = loop, .counts = true, .guard = {}});
    }
  }
  if (item) {
    add_end(loop, {.least = limits.least, .most = kNoLimit});
    const StateId comma = builder_.add_state(rule);
    const std::uint32_t most = limits.most == kNoLimit ? kNoLimit : limits.most - 1;
    builder_.add_edge(loop, {.low = ',', .high = ',', .target = comma, .guard = {0, most}});
    builder_.add_call(rules_.skip(comma, rule),
                      {.rule = *item, .target = loop, .counts = true, .guard = {}});
  }
  return {};
}

Status SchemaCompiler::read_properties(const SchemaNode& node, ObjectShape& shape) {
  if (const SchemaNode list = child(node, "properties"); list.json != nullptr) {
    if (!list.json->is_object() || list.json->size() > kMaxProperties) {
      return fault(list, "want an object of at most {} schemas, found {} of {}", kMaxProperties,
                   list.json->type_name(), list.json->size());
    }
    for (const auto& [name, schema] : list.json->items()) {
      shape.properties.push_back({name, rule_of(child(node, "properties", name)), false});
    }
  }
  const SchemaNode required = child(node, "required");
  if (required.json == nullptr) {
    return {};
  }
  if (!required.json->is_array() || required.json->size() > kMaxProperties) {
    return fault(required, "want a list of at most {} names, found {}", kMaxProperties,
                 required.json->type_name());
  }
  for (const Json& name : *required.json) {
    if (!name.is_string()) {
      return fault(required, "want names, found {}", name.dump());
    }
    auto& properties = shape.properties;
    auto at = std::find_if(properties.begin(), properties.end(),
                           [&](const Property& property) { return property.name == name; });
    if (at == properties.end() && !shape.additional) {
      return fault(required, "{} is required but not admitted", name.dump());
    }
    if (at == properties.end()) {
      properties.push_back({name.get<std::string>(), *shape.additional, false});
      at = properties.end() - 1;
    }
    shape.num_required += at->is_required ? 0 : 1;
    at->is_required = true;
  }
  return {};
}

Status SchemaCompiler::read_count(const SchemaNode& node, ObjectShape& shape) const {
  NIBBLE_ASSIGN_OR_RETURN(const Limits limits, limits_of(node, "minProperties", "maxProperties"));
  const auto num_declared = static_cast<std::uint32_t>(shape.properties.size());
  if (shape.num_required > limits.most || (!shape.additional && num_declared < limits.least)) {
    return fault(node, "want {} to {} properties, but {} are required and {} admitted",
                 limits.least, limits.most, shape.num_required, num_declared);
  }
  const bool is_met =
      limits.least <= shape.num_required &&
      (limits.most == kNoLimit || (!shape.additional && num_declared <= limits.most));
  if (is_met) {
    return {};
  }
  if (num_declared != shape.num_required) {
    return fault(node,
                 "minProperties or maxProperties beside optional properties is not supported");
  }
  shape.further.least = limits.least - std::min(limits.least, num_declared);
  shape.further.most = limits.most == kNoLimit ? kNoLimit : limits.most - num_declared;
  if (shape.further.most == 0) {
    shape.additional.reset();
  }
  return {};
}

Result<SchemaCompiler::ObjectShape> SchemaCompiler::object_shape(const SchemaNode& node) {
  ObjectShape shape;
  const SchemaNode additional = child(node, "additionalProperties");
  if (additional.json == nullptr) {
    shape.additional = rules_.any_value();
  } else if (*additional.json != Json(false)) {
    shape.additional = rule_of(additional);
  }
  NIBBLE_RETURN_IF_ERROR(read_properties(node, shape));
  NIBBLE_RETURN_IF_ERROR(read_count(node, shape));
  return shape;
}

// Any name but those declared, so that none escapes its schema.
Result<RuleId> SchemaCompiler::further_key(const SchemaNode& node, const ObjectShape& shape) {
  if (shape.properties.empty()) {
    return rules_.any_string();
  }
  std::vector<std::string> names;
  for (const Property& property : shape.properties) {
    const std::string name = json_string(property.name);
    names.push_back(name.substr(1, name.size() - 2));
  }
  const std::optional<Dfa> all = string_content(0, kNoLimit);
  const std::optional<Dfa> declared = any_of(names);
  std::optional<Dfa> others;
  if (all && declared) {
    others = combine(*all, *declared, Keep::kOnlyInFirst);
  }
  if (others) {
    others = in_quotes(*others);
  }
  const RuleId rule = builder_.add_rule();
  NIBBLE_RETURN_IF_ERROR(define(node, rule, others));
  return rule;
}

Status SchemaCompiler::compile_object(const SchemaNode& node, RuleId rule) {
  NIBBLE_ASSIGN_OR_RETURN(const ObjectShape shape, object_shape(node));
  std::optional<RuleId> key;
  if (shape.additional) {
    NIBBLE_ASSIGN_OR_RETURN(key, further_key(node, shape));
  }
  define_object(shape, key, rule);
  return {};
}

// Declared properties in their order, optional ones may be left out, then further ones.
void SchemaCompiler::define_object(const ObjectShape& shape, std::optional<RuleId> further_key,
                                   RuleId rule) {
  const std::size_t count = shape.properties.size();
  const StateId end = builder_.add_state(rule);
  builder_.accept(end);
  std::vector<StateId> keys;  // behind the opening quote of each name
  for (std::size_t i = 0; i < count; ++i) {
    keys.push_back(builder_.add_state(rule));
  }
  const StateId colon = builder_.add_state(rule);  // behind a further name
  const StateId more = builder_.add_state(rule);   // behind a further property
  // What may follow where the properties from `next` on are still to come; `before` is behind the
  // brace or a comma.
  const auto add_choices = [&](StateId before, std::size_t next) {
    for (std::size_t i = next; i < count; ++i) {
      builder_.add_edge(before, {.low = '"', .high = '"', .target = keys[i], .guard = {}});
      if (shape.properties[i].is_required) {
        return;
      }
    }
    if (further_key) {
      builder_.add_call(before,
                        {.rule = *further_key, .target = colon, .counts = true, .guard = {}});
    }
  };
  const auto may_end = [&](std::size_t next) {
    return shape.further.least == 0 &&
           std::none_of(shape.properties.begin() + static_cast<std::ptrdiff_t>(next),
                        shape.properties.end(),
                        [](const Property& property) { return property.is_required; });
  };
  const auto add_end = [&](StateId from, Guard guard) {
    builder_.add_literal(rules_.skip(from, rule, guard), "}", end);
  };
  const StateId open = builder_.add_literal(builder_.start_of(rule), "{");
  add_choices(rules_.skip(open, rule), 0);
  if (may_end(0)) {
    add_end(open, {});
  }
  for (std::size_t i = 0; i < count; ++i) {
    const std::string name = json_string(shape.properties[i].name).substr(1) + ":";
    const StateId behind = builder_.add_state(rule);
    builder_.add_call(rules_.skip(builder_.add_literal(keys[i], name), rule),
                      {.rule = shape.properties[i].value, .target = behind, .guard = {}});
    add_choices(rules_.skip(builder_.add_literal(behind, ","), rule), i + 1);
    if (may_end(i + 1)) {
      add_end(behind, {});
    }
  }
  if (further_key) {
    builder_.add_call(rules_.skip(builder_.add_literal(colon, ":"), rule),
                      {.rule = *shape.additional, .target = more, .guard = {}});
    const StateId comma = builder_.add_state(rule);
    const std::uint32_t most = shape.further.most == kNoLimit ? kNoLimit : shape.further.most - 1;
    builder_.add_edge(more, {.low = ',', .high = ',', .target = comma, .guard = {0, most}});
    builder_.add_call(rules_.skip(comma, rule),
                      {.rule = *further_key, .target = colon, .counts = true, .guard = {}});
    add_end(more, {.least = shape.further.least, .most = kNoLimit});
  }
}

}  // namespace

Result<RuleId> add_json_schema(GrammarBuilder& builder, JsonRules& rules, std::string_view schema) {
  NIBBLE_ASSIGN_OR_RETURN(const SchemaDocument document, SchemaDocument::parse(schema));
  return SchemaCompiler(builder, rules, document).run();
}

}  // namespace nibble::grammar
