// Responses of /v1/responses that clients may come back to: the oldest make room for new ones.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "nibble/request.h"

namespace nibble::server {

struct StoredResponse {
  std::string json;                       // as GET gives it
  std::vector<ChatMessage> conversation;  // what a following request continues
  std::function<void()> cancel;           // while it is being made
};

// Any thread.
class ResponseStore {
 public:
  // 0: keeps nothing.
  explicit ResponseStore(std::int64_t max_bytes) : max_bytes_(max_bytes) {}

  // Replaces one of the same id. Running ones are never evicted: their number is limited elsewhere.
  void put(const std::string& id, StoredResponse response);
  std::optional<StoredResponse> get(const std::string& id) const;
  bool erase(const std::string& id);
  std::int64_t num_bytes() const;

 private:
  struct Entry {
    StoredResponse response;
    std::int64_t bytes = 0;
    std::list<std::string>::iterator age;
  };
  void evict();

  std::int64_t max_bytes_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Entry> entries_;
  std::list<std::string> ages_;  // oldest first
  std::int64_t num_bytes_ = 0;
};

}  // namespace nibble::server
