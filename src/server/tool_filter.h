// A model may call what was never offered to it. Such a call is text for the user: the client would
// look for a function that it does not have.
#pragma once

#include <string>
#include <vector>

#include "nibble/request.h"

namespace nibble::server {

class ToolFilter {
 public:
  explicit ToolFilter(const std::vector<Tool>& tools);

  // False: nothing to deliver.
  bool pass(Delta& delta);
  // After the last delta: makes the response equal what was delivered.
  void pass(Response& response);

 private:
  bool is_offered(const std::string& name) const;

  std::vector<std::string> names_;
  std::vector<std::int32_t> indices_;  // of each call so far: its new index, -1 for text
  std::string content_;
};

}  // namespace nibble::server
