#include "text/tokenizer_file.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/pattern.h"
#include "text/tokenizer_sax.h"
#include "text/vocabulary.h"

namespace nibble::text {

namespace {

using nlohmann::json;

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 30U;
constexpr std::size_t kMaxSplits = 16;
constexpr std::size_t kMaxShown = 40;

// A value as it goes into a one-line message.
std::string shown(const json* value) {
  if (value == nullptr) {
    return "nothing";
  }
  // ASCII only: control characters and invalid bytes come out escaped.
  std::string text = value->dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kMaxShown) {
    text.resize(kMaxShown);
    text += "...";
  }
  return text;
}

const json* find(const json& object, const char* key) {
  const auto at = object.find(key);
  return at == object.end() || at->is_null() ? nullptr : &*at;
}

Status wrong(const std::string& field, std::string_view want, const json* found) {
  return error(Code::kCorrupt, "{}: want {}, found {}", field, want, shown(found));
}

Status unsupported(const std::string& field, std::string_view want, const json* found) {
  return error(Code::kUnsupported, "{}: this build supports only {}, found {}", field, want,
               shown(found));
}

Result<bool> read_bool(const json& object, const std::string& field, const char* key,
                       bool standard) {
  const json* value = find(object, key);
  if (value == nullptr) {
    return standard;
  }
  if (!value->is_boolean()) {
    return wrong(field + "." + key, "true or false", value);
  }
  return value->get<bool>();
}

Result<std::string> read_string(const json& object, const std::string& field, const char* key) {
  const json* value = find(object, key);
  if (value == nullptr || !value->is_string()) {
    return wrong(field + "." + key, "a string", value);
  }
  return value->get<std::string>();
}

// A setting that would make text irrecoverable, or the ids different, if it were on.
Status require_off(const json& object, const std::string& field, const char* key) {
  NIBBLE_ASSIGN_OR_RETURN(const bool is_on, read_bool(object, field, key, false));
  return is_on ? unsupported(field + "." + key, "false", find(object, key)) : Status();
}

Status read_model(const json& tree, TokenizerFile& file) {
  const json* model = find(tree, "model");
  if (model == nullptr || !model->is_object()) {
    return wrong("model", "an object", model);
  }
  // Files of the GPT-2 era have no type.
  if (const json* type = find(*model, "type"); type != nullptr && *type != "BPE") {
    return unsupported("model.type", "\"BPE\"", type);
  }
  if (file.vocab.empty()) {
    return wrong("model.vocab", "an object with tokens", find(*model, "vocab"));
  }
  if (const json* merges = find(*model, "merges"); merges != nullptr) {
    return wrong("model.merges", "an array", merges);
  }
  if (const json* dropout = find(*model, "dropout"); dropout != nullptr && *dropout != 0.0) {
    return unsupported("model.dropout", "null", dropout);
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (const json* affix = find(*model, key); affix != nullptr && *affix != "") {
      return unsupported(std::string("model.") + key, "null", affix);
    }
  }
  NIBBLE_RETURN_IF_ERROR(require_off(*model, "model", "byte_fallback"));
  NIBBLE_ASSIGN_OR_RETURN(file.ignore_merges, read_bool(*model, "model", "ignore_merges", false));
  return {};
}

Result<AddedToken> read_added_token(const json& value, const std::string& field) {
  if (!value.is_object()) {
    return wrong(field, "an object", &value);
  }
  AddedToken token;
  const json* id = find(value, "id");
  if (id == nullptr || !id->is_number_unsigned() || *id >= Vocabulary::kMaxIds) {
    return wrong(field + ".id", fmt::format("an id below {}", Vocabulary::kMaxIds), id);
  }
  token.id = id->get<std::int32_t>();
  NIBBLE_ASSIGN_OR_RETURN(token.content, read_string(value, field, "content"));
  if (token.content.empty()) {
    return wrong(field + ".content", "a spelling", find(value, "content"));
  }
  for (const char* key : {"single_word", "lstrip", "rstrip"}) {
    NIBBLE_RETURN_IF_ERROR(require_off(value, field, key));
  }
  NIBBLE_ASSIGN_OR_RETURN(token.is_special, read_bool(value, field, "special", false));
  NIBBLE_ASSIGN_OR_RETURN(token.is_normalized, read_bool(value, field, "normalized", false));
  return token;
}

Status read_added_tokens(const json& tree, TokenizerFile& file) {
  const json* list = find(tree, "added_tokens");
  if (list == nullptr) {
    return {};
  }
  if (!list->is_array()) {
    return wrong("added_tokens", "an array", list);
  }
  for (std::size_t i = 0; i < list->size(); ++i) {
    NIBBLE_ASSIGN_OR_RETURN(AddedToken token,
                            read_added_token((*list)[i], fmt::format("added_tokens[{}]", i)));
    file.added.push_back(std::move(token));
  }
  return {};
}

Result<SplitBehavior> read_behavior(const json& value, const std::string& field) {
  NIBBLE_ASSIGN_OR_RETURN(const std::string name, read_string(value, field, "behavior"));
  if (name == "Isolated") {
    return SplitBehavior::kIsolated;
  }
  if (name == "Removed") {
    return SplitBehavior::kRemoved;
  }
  if (name == "MergedWithPrevious") {
    return SplitBehavior::kMergedWithPrevious;
  }
  if (name == "MergedWithNext") {
    return SplitBehavior::kMergedWithNext;
  }
  if (name == "Contiguous") {
    return SplitBehavior::kContiguous;
  }
  return wrong(field + ".behavior", "the name of a behaviour", find(value, "behavior"));
}

Result<std::string> read_pattern(const json& value, const std::string& field) {
  const json* pattern = find(value, "pattern");
  if (pattern == nullptr || !pattern->is_object() || pattern->size() != 1 ||
      !pattern->begin()->is_string()) {
    return wrong(field + ".pattern", "{\"Regex\": ...} or {\"String\": ...}", pattern);
  }
  const std::string kind = pattern->begin().key();
  const std::string text = pattern->begin()->get<std::string>();
  if (kind == "String") {
    return literal_pattern(text);
  }
  if (kind != "Regex") {
    return wrong(field + ".pattern", "{\"Regex\": ...} or {\"String\": ...}", pattern);
  }
  Result<std::string> translated = translate_pattern(text);
  if (!translated) {
    return error(Code::kUnsupported, "{}.pattern.Regex: {}", field, translated.error().message());
  }
  return translated;
}

Status read_split(const json& value, const std::string& field, TokenizerFile& file) {
  SplitRule rule;
  rule.field = field;
  NIBBLE_ASSIGN_OR_RETURN(rule.pattern, read_pattern(value, field));
  NIBBLE_ASSIGN_OR_RETURN(rule.behavior, read_behavior(value, field));
  NIBBLE_ASSIGN_OR_RETURN(rule.invert, read_bool(value, field, "invert", false));
  if (rule.behavior == SplitBehavior::kRemoved && !rule.invert) {
    return unsupported(field + ".behavior", "\"Removed\" with invert (it would lose text)",
                       find(value, "behavior"));
  }
  file.splits.push_back(std::move(rule));
  return {};
}

Status read_byte_level(const json& value, const std::string& field, TokenizerFile& file) {
  // The reference's defaults: both on when absent.
  NIBBLE_ASSIGN_OR_RETURN(const bool is_prefixed,
                          read_bool(value, field, "add_prefix_space", true));
  if (is_prefixed) {
    return unsupported(field + ".add_prefix_space", "false", find(value, "add_prefix_space"));
  }
  NIBBLE_ASSIGN_OR_RETURN(const bool use_regex, read_bool(value, field, "use_regex", true));
  if (use_regex) {
    NIBBLE_ASSIGN_OR_RETURN(std::string pattern, translate_pattern(gpt2_pattern()));
    file.splits.push_back({.pattern = std::move(pattern), .field = field + ".use_regex"});
  }
  return {};
}

Status read_steps(const json& steps, const std::string& field, TokenizerFile& file) {
  bool is_byte_level = false;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::string place = fmt::format("{}[{}]", field, i);
    if (!steps[i].is_object()) {
      return wrong(place, "an object", &steps[i]);
    }
    NIBBLE_ASSIGN_OR_RETURN(const std::string type, read_string(steps[i], place, "type"));
    if (is_byte_level) {
      return unsupported(place, "ByteLevel as the last step", &steps[i]);
    }
    if (type == "Split") {
      NIBBLE_RETURN_IF_ERROR(read_split(steps[i], place, file));
    } else if (type == "ByteLevel") {
      NIBBLE_RETURN_IF_ERROR(read_byte_level(steps[i], place, file));
      is_byte_level = true;
    } else {
      return unsupported(place + ".type", "\"Split\" and \"ByteLevel\"", find(steps[i], "type"));
    }
  }
  if (!is_byte_level) {
    return error(Code::kUnsupported, "{}: this build supports only ByteLevel vocabularies", field);
  }
  if (file.splits.size() > kMaxSplits) {
    return error(Code::kUnsupported, "{}: want at most {} splits, found {}", field, kMaxSplits,
                 file.splits.size());
  }
  return {};
}

Status read_pre_tokenizer(const json& tree, TokenizerFile& file) {
  const json* value = find(tree, "pre_tokenizer");
  if (value == nullptr) {
    return unsupported("pre_tokenizer", "\"Sequence\" and \"ByteLevel\"", value);
  }
  if (!value->is_object()) {
    return wrong("pre_tokenizer", "an object", value);
  }
  NIBBLE_ASSIGN_OR_RETURN(const std::string type, read_string(*value, "pre_tokenizer", "type"));
  if (type != "Sequence") {
    return read_steps(json::array({*value}), "pre_tokenizer", file);
  }
  const json* steps = find(*value, "pretokenizers");
  if (steps == nullptr || !steps->is_array()) {
    return wrong("pre_tokenizer.pretokenizers", "an array", steps);
  }
  return read_steps(*steps, "pre_tokenizer.pretokenizers", file);
}

// A normaliser changes text before it is encoded: only the empty one keeps it.
Status check_normalizer(const json& tree) {
  const json* value = find(tree, "normalizer");
  const bool is_empty =
      value == nullptr || (value->is_object() && value->value("type", json()) == "Sequence" &&
                           value->value("normalizers", json()) == json::array());
  return is_empty ? Status() : unsupported("normalizer", "null", value);
}

Status check_decoder(const json& tree) {
  const json* value = find(tree, "decoder");
  const bool is_byte_level =
      value == nullptr || (value->is_object() && value->value("type", json()) == "ByteLevel");
  return is_byte_level ? Status() : unsupported("decoder", "\"ByteLevel\"", value);
}

Status read_fields(std::string_view json_text, TokenizerFile& file) {
  if (json_text.size() > kMaxFileBytes) {
    return error(Code::kUnsupported, "want at most {} bytes, found {}", kMaxFileBytes,
                 json_text.size());
  }
  json tree;
  NIBBLE_RETURN_IF_ERROR(scan_tokenizer_json(json_text, file, tree));
  if (!tree.is_object()) {
    return error(Code::kCorrupt, "want a JSON object, found {}", shown(&tree));
  }
  NIBBLE_RETURN_IF_ERROR(read_model(tree, file));
  NIBBLE_RETURN_IF_ERROR(read_added_tokens(tree, file));
  NIBBLE_RETURN_IF_ERROR(check_normalizer(tree));
  NIBBLE_RETURN_IF_ERROR(read_pre_tokenizer(tree, file));
  return check_decoder(tree);
}

}  // namespace

Result<TokenizerFile> read_tokenizer_file(const std::string& path, std::string_view json) {
  TokenizerFile file;
  if (const Status status = read_fields(json, file); !status.ok()) {
    return Status(status.code(), path + ": " + status.message());
  }
  return file;
}

}  // namespace nibble::text
