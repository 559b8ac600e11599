#include "text/tokenizer_sax.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/byte_alphabet.h"
#include "text/vocabulary.h"

namespace nibble::text {

namespace {

using nlohmann::json;

constexpr std::size_t kMaxDepth = 64;

class Handler final : public nlohmann::json_sax<json> {
 public:
  Handler(TokenizerFile& file, json& tree) : file_(file), tree_(tree) {}

  const Status& status() const { return status_; }

  bool null() override { return value(nullptr, "null"); }
  bool boolean(bool v) override { return value(v, "a boolean"); }
  bool number_integer(std::int64_t v) override { return value(v, "a negative number"); }
  bool number_float(double v, const std::string& /*text*/) override {
    return value(v, "a fraction");
  }
  bool binary(json::binary_t& /*v*/) override { return refuse("binary data"); }

  bool number_unsigned(std::uint64_t v) override {
    return where_ == Where::kVocab ? vocab_id(v) : value(v, "a number");
  }

  bool string(std::string& v) override {
    switch (where_) {
      case Where::kMerges: return merge_line(v);
      case Where::kPair: return merge_part(v);
      default: return value(std::move(v), "a string");
    }
  }

  bool key(std::string& v) override {
    if (where_ == Where::kVocab) {
      return vocab_key(v);
    }
    if (stack_.back()->contains(v) || (is_in_model() && is_table_seen(v))) {
      return refuse(fmt::format("the key \"{}\" comes twice", v));
    }
    key_ = v;
    return true;
  }

  bool start_object(std::size_t /*elements*/) override {
    if (is_in_model() && key_ == "vocab" && where_ == Where::kTree) {
      where_ = Where::kVocab;
      has_vocab_ = true;
      return true;
    }
    return open(json::object(), "an object");
  }

  bool end_object() override {
    if (where_ == Where::kVocab) {
      where_ = Where::kTree;
    } else {
      close();
    }
    return true;
  }

  bool start_array(std::size_t /*elements*/) override {
    if (where_ == Where::kMerges) {
      where_ = Where::kPair;
      parts_ = 0;
      return begin_merge();
    }
    if (is_in_model() && key_ == "merges" && where_ == Where::kTree) {
      where_ = Where::kMerges;
      has_merges_ = true;
      return true;
    }
    return open(json::array(), "an array");
  }

  bool end_array() override {
    if (where_ == Where::kPair) {
      if (parts_ != 2) {
        return refuse_merge(fmt::format("{} strings", parts_));
      }
      where_ = Where::kMerges;
      return true;
    }
    if (where_ == Where::kMerges) {
      where_ = Where::kTree;
    } else {
      close();
    }
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*cause*/) override {
    return refuse(fmt::format("not valid JSON at byte {}", position));
  }

 private:
  enum class Where : std::uint8_t { kTree, kVocab, kMerges, kPair };

  bool refuse(const std::string& what) {
    status_ = Status(Code::kCorrupt, what);
    return false;
  }

  bool refuse_merge(std::string_view found) {
    return refuse(fmt::format("model.merges[{}]: want \"a b\" or [\"a\", \"b\"], found {}",
                              file_.merges.size() - (where_ == Where::kPair ? 1 : 0), found));
  }

  // The root's own object is stack_[0]; below it only objects know a key.
  bool is_in_model() const { return stack_.size() == 2 && is_model_; }

  bool is_table_seen(const std::string& name) const {
    return (has_vocab_ && name == "vocab") || (has_merges_ && name == "merges");
  }

  json* place(json&& v) {
    if (stack_.empty()) {
      tree_ = std::move(v);
      return &tree_;
    }
    json& parent = *stack_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(v));
      return &parent.back();
    }
    json& slot = parent[key_];
    slot = std::move(v);
    return &slot;
  }

  bool value(json v, std::string_view kind) {
    switch (where_) {
      case Where::kTree: place(std::move(v)); return true;
      case Where::kVocab:
        return refuse(fmt::format("model.vocab, entry {}: want an id, found {}",
                                  file_.vocab.size() - 1, kind));
      default: return refuse_merge(kind);
    }
  }

  bool open(json v, std::string_view kind) {
    if (where_ != Where::kTree) {
      return value(nullptr, kind);
    }
    if (stack_.size() == kMaxDepth) {
      return refuse(fmt::format("values nest deeper than {} levels", kMaxDepth));
    }
    if (stack_.size() == 1) {
      is_model_ = key_ == "model" && stack_[0]->is_object() && v.is_object();
    }
    stack_.push_back(place(std::move(v)));
    return true;
  }

  void close() { stack_.pop_back(); }

  bool vocab_key(const std::string& spelling) {
    VocabEntry entry{.offset = static_cast<std::uint32_t>(file_.vocab_bytes.size())};
    if (spelling.empty()) {
      return refuse(fmt::format("model.vocab, entry {}: the token is empty", file_.vocab.size()));
    }
    entry.is_bytes = append_alphabet_bytes(spelling, file_.vocab_bytes);
    if (!entry.is_bytes) {
      file_.vocab_bytes.append(spelling);
    }
    entry.length = static_cast<std::uint32_t>(file_.vocab_bytes.size()) - entry.offset;
    file_.vocab.push_back(entry);
    return true;
  }

  bool vocab_id(std::uint64_t id) {
    if (id >= static_cast<std::uint64_t>(Vocabulary::kMaxIds)) {
      return refuse(fmt::format("model.vocab, entry {}: want an id below {}, found {}",
                                file_.vocab.size() - 1, Vocabulary::kMaxIds, id));
    }
    file_.vocab.back().id = static_cast<std::int32_t>(id);
    return true;
  }

  bool begin_merge() {
    file_.merges.push_back({.offset = static_cast<std::uint32_t>(file_.merge_bytes.size())});
    return true;
  }

  bool merge_part(std::string_view spelling) {
    if (parts_ == 2) {
      return refuse_merge("more than two strings");
    }
    const std::size_t before = file_.merge_bytes.size();
    if (!append_alphabet_bytes(spelling, file_.merge_bytes)) {
      return refuse(fmt::format("model.merges[{}]: has a character outside the byte alphabet",
                                file_.merges.size() - 1));
    }
    MergeEntry& merge = file_.merges.back();
    (parts_ == 0 ? merge.left_length : merge.right_length) =
        static_cast<std::uint32_t>(file_.merge_bytes.size() - before);
    ++parts_;
    return true;
  }

  bool merge_line(std::string_view line) {
    if (line.starts_with("#version")) {
      return true;  // the first line of a merges.txt that was copied in
    }
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
      return refuse_merge("a string without exactly one space");
    }
    parts_ = 0;
    return begin_merge() && merge_part(line.substr(0, space)) && merge_part(line.substr(space + 1));
  }

  TokenizerFile& file_;
  json& tree_;
  Status status_;
  std::vector<json*> stack_;  // open containers of the tree
  std::string key_;
  Where where_ = Where::kTree;
  bool is_model_ = false;
  bool has_vocab_ = false, has_merges_ = false;
  int parts_ = 0;
};

}  // namespace

Status scan_tokenizer_json(std::string_view text, TokenizerFile& file, json& tree) {
  Handler handler(file, tree);
  const bool is_read = json::sax_parse(text.begin(), text.end(), &handler);
  if (!is_read && handler.status().ok()) {
    return error(Code::kCorrupt, "not valid JSON");
  }
  return handler.status();
}

}  // namespace nibble::text
