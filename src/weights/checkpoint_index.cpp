#include "weights/checkpoint_index.h"

#include <utility>

#include "base/error.h"
#include "weights/header_sax.h"
#include "weights/json_events.h"

namespace nibble::weights {
namespace {

// Keeps `weight_map` and passes over everything else, at any depth.
class IndexSax final : public JsonEvents {
 public:
  using JsonEvents::JsonEvents;

  WeightMap take() { return std::move(map_); }

  bool string(std::string& file) override {
    if (depth_ != 2 || !in_map_) {
      return unexpected('"' + printable(file) + '"');
    }
    if (!file.ends_with(".safetensors") ||
        file.find_first_of(std::string_view("/\0", 2)) != std::string::npos) {
      return fail("tensor {}: want the name of a .safetensors file of this folder, found \"{}\"",
                  printable(name_), printable(file));
    }
    return map_.emplace(name_, file).second || fail("duplicate key \"{}\"", printable(name_));
  }
  bool start_object(std::size_t /*elements*/) override { return nest("an object"); }
  bool start_array(std::size_t /*elements*/) override { return nest("a list"); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }

  bool key(std::string& key) override {
    if (depth_ == 1) {
      in_map_ = key == "weight_map";
      if (in_map_ && std::exchange(seen_map_, true)) {
        return fail("duplicate key \"{}\"", "weight_map");
      }
    }
    if (depth_ <= 2) {
      name_ = key;
    }
    return true;
  }

 private:
  bool unexpected(const std::string& found) override {
    if (depth_ == 0) {
      return fail("want a JSON object, found {}", found);
    }
    if (in_map_ && depth_ == 1) {
      return fail("weight_map: want an object, found {}", found);
    }
    return !in_map_ || fail("tensor {}: want a file name, found {}", printable(name_), found);
  }

  bool nest(const std::string& found) {
    if ((depth_ == 0 && found != "an object") || (in_map_ && depth_ == 2)) {
      return unexpected(found);
    }
    if (in_map_ && depth_ == 1 && found != "an object") {
      return unexpected(found);
    }
    ++depth_;
    return true;
  }

  bool leave() {
    --depth_;
    if (depth_ == 1) {
      in_map_ = false;
    }
    return true;
  }

  WeightMap map_;
  std::int64_t depth_ = 0;
  bool in_map_ = false;
  bool seen_map_ = false;
  std::string name_;
};

}  // namespace

Result<WeightMap> parse_index(const std::string& path, std::string_view text) {
  IndexSax sax(path);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &sax)) {
    return sax.status();
  }
  WeightMap map = sax.take();
  if (map.empty()) {
    return error(Code::kCorrupt, "{}: want a weight_map with tensors, found none", path);
  }
  return map;
}

}  // namespace nibble::weights
