// What readers of JSON as events share: no tree is built, so depth and size of a hostile file cost
// nothing. The first fault ends the reading and becomes a Status that begins with the file's name.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/error.h"

namespace nibble::weights {

class JsonEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  // `subject` stands before "not valid JSON": the part of the file that is read, or nothing.
  explicit JsonEvents(const std::string& path, const char* subject = "")
      : path_(path), subject_(subject) {}

  const Status& status() const { return status_; }

  bool null() override { return unexpected("null"); }
  bool boolean(bool value) override { return unexpected(value ? "true" : "false"); }
  bool number_integer(std::int64_t value) override { return unexpected(std::to_string(value)); }
  bool number_unsigned(std::uint64_t value) override { return unexpected(std::to_string(value)); }
  bool number_float(double /*value*/, const std::string& text) override { return unexpected(text); }
  bool binary(binary_t& /*value*/) override { return unexpected("binary"); }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::json::exception& /*exception*/) override {
    return fail("{}not valid JSON at byte {}", subject_, position);
  }

 protected:
  // A value of a kind that its place does not allow, or that is passed over.
  virtual bool unexpected(const std::string& found) = 0;

  template <typename... Args>
  bool fail(fmt::format_string<Args...> format, Args&&... args) {
    status_ =
        error(Code::kCorrupt, "{}: {}", path_, fmt::format(format, std::forward<Args>(args)...));
    return false;
  }

 private:
  const std::string& path_;
  const char* subject_;
  Status status_;
};

}  // namespace nibble::weights
