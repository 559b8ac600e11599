#include "weights/header_sax.h"

#include <limits>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "weights/dtype_names.h"
#include "weights/json_events.h"

namespace nibble::weights {
namespace {

constexpr std::size_t kMaxDims = 8;
constexpr std::string_view kMetadata = "__metadata__";

// What the value to come belongs to.
enum class Field { kNone, kDType, kShape, kOffsets };

class HeaderSax final : public JsonEvents {
 public:
  explicit HeaderSax(const std::string& path) : JsonEvents(path, "header: ") {}

  Header take() { return std::move(header_); }

  bool number_unsigned(std::uint64_t value) override {
    if (!in_array_ ||
        value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return unexpected(std::to_string(value));
    }
    if (numbers_.size() == kMaxDims) {
      return fail("tensor {}: want at most {} numbers in a list", printable(name_), kMaxDims);
    }
    numbers_.push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool string(std::string& value) override {
    if (depth_ == 2 && in_metadata_) {
      header_.metadata.emplace(name_, value);
      return true;
    }
    if (depth_ != 2 || field_ != Field::kDType) {
      return unexpected('"' + printable(value) + '"');
    }
    const std::optional<DType> dtype = find_dtype(value);
    if (!dtype) {
      return fail("tensor {}: unknown dtype \"{}\"", printable(name_), printable(value));
    }
    entry_.dtype = *dtype;
    return true;
  }

  bool start_object(std::size_t /*elements*/) override {
    if (depth_ == 2 || in_array_) {
      return unexpected("an object");
    }
    ++depth_;
    return true;
  }

  bool key(std::string& key) override {
    if (depth_ == 1) {
      in_metadata_ = key == kMetadata;
      entry_ = {};
      field_ = Field::kNone;
      seen_dtype_ = seen_shape_ = seen_offsets_ = false;
      name_ = key;
      return names_.insert(key).second || fail("duplicate key \"{}\"", printable(key));
    }
    if (in_metadata_) {
      name_ = key;
      return !header_.metadata.contains(key) ||
             fail("duplicate key \"{}\" in {}", printable(key), kMetadata);
    }
    return tensor_key(key);
  }

  bool end_object() override {
    --depth_;
    if (depth_ == 0 || std::exchange(in_metadata_, false)) {
      return true;
    }
    if (!seen_dtype_ || !seen_shape_ || !seen_offsets_) {
      return fail("tensor {}: no {}", printable(name_),
                  !seen_dtype_   ? "dtype"
                  : !seen_shape_ ? "shape"
                                 : "data_offsets");
    }
    entry_.name = name_;
    header_.tensors.push_back(std::move(entry_));
    return true;
  }

  bool start_array(std::size_t /*elements*/) override {
    if (depth_ != 2 || in_array_ || (field_ != Field::kShape && field_ != Field::kOffsets)) {
      return unexpected("a list");
    }
    in_array_ = true;
    numbers_.clear();
    return true;
  }

  bool end_array() override {
    in_array_ = false;
    if (field_ == Field::kShape) {
      entry_.shape = numbers_;
      return true;
    }
    if (numbers_.size() != 2) {
      return fail("tensor {}: want 2 data_offsets, found {}", printable(name_), numbers_.size());
    }
    entry_.begin = numbers_[0];
    entry_.end = numbers_[1];
    return true;
  }

 private:
  bool unexpected(const std::string& found) override {
    if (depth_ == 0) {
      return fail("want a JSON object as header, found {}", found);
    }
    if (depth_ == 1) {
      return fail("\"{}\": want an object, found {}", printable(name_), found);
    }
    if (in_metadata_) {
      return fail("{}: \"{}\": want a string, found {}", kMetadata, printable(name_), found);
    }
    const std::string_view want = field_ == Field::kDType     ? "dtype: want a string"
                                  : field_ == Field::kShape   ? "shape: want a list of sizes"
                                  : field_ == Field::kOffsets ? "data_offsets: want two offsets"
                                                              : "want fields";
    return fail("tensor {}: {}, found {}", printable(name_), want, found);
  }

  bool tensor_key(const std::string& key) {
    bool* seen = nullptr;
    if (key == "dtype") {
      field_ = Field::kDType;
      seen = &seen_dtype_;
    } else if (key == "shape") {
      field_ = Field::kShape;
      seen = &seen_shape_;
    } else if (key == "data_offsets") {
      field_ = Field::kOffsets;
      seen = &seen_offsets_;
    } else {
      return fail("tensor {}: unknown field \"{}\"", printable(name_), printable(key));
    }
    return !std::exchange(*seen, true) ||
           fail("tensor {}: duplicate key \"{}\"", printable(name_), key);
  }

  Header header_;
  std::unordered_set<std::string> names_;
  int depth_ = 0;
  bool in_metadata_ = false;
  bool in_array_ = false;
  Field field_ = Field::kNone;
  std::string name_;  // of the tensor, or the key inside __metadata__
  TensorEntry entry_;
  bool seen_dtype_ = false;
  bool seen_shape_ = false;
  bool seen_offsets_ = false;
  std::vector<std::int64_t> numbers_;
};

}  // namespace

std::string printable(std::string_view name) {
  constexpr std::size_t kMaxBytes = 160;
  std::string out;
  for (const char c : name.substr(0, kMaxBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7F) {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", byte);
    }
  }
  return name.size() > kMaxBytes ? out + "..." : out;
}

Result<Header> parse_header_json(const std::string& path, std::string_view text) {
  if (text.empty() || text.front() != '{') {
    return error(Code::kCorrupt, "{}: the header does not begin with '{{'", path);
  }
  HeaderSax sax(path);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &sax)) {
    return sax.status();
  }
  return sax.take();
}

}  // namespace nibble::weights
