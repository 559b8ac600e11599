#include "server/response_store.h"

#include <utility>

namespace nibble::server {
namespace {

std::int64_t bytes_of(const StoredResponse& response) {
  std::size_t bytes = sizeof(StoredResponse) + response.json.size();
  for (const ChatMessage& message : response.conversation) {
    bytes += sizeof(ChatMessage) + message.content.size() + message.reasoning.size();
    for (const ToolCall& call : message.tool_calls) {
      bytes += sizeof(ToolCall) + call.name.size() + call.arguments.size();
    }
  }
  return static_cast<std::int64_t>(bytes);
}

}  // namespace

void ResponseStore::put(const std::string& id, StoredResponse response) {
  if (max_bytes_ == 0) {
    return;
  }
  const std::int64_t bytes = bytes_of(response);
  const std::lock_guard lock(mutex_);
  const auto [at, is_new] = entries_.try_emplace(id);
  if (is_new) {
    at->second.age = ages_.insert(ages_.end(), id);
  }
  num_bytes_ += bytes - at->second.bytes;
  at->second.bytes = bytes;
  at->second.response = std::move(response);
  evict();
}

void ResponseStore::evict() {
  for (auto age = ages_.begin(); num_bytes_ > max_bytes_ && age != ages_.end();) {
    const auto oldest = entries_.find(*age);
    if (oldest->second.response.cancel) {
      ++age;
      continue;
    }
    num_bytes_ -= oldest->second.bytes;
    entries_.erase(oldest);
    age = ages_.erase(age);
  }
}

std::optional<StoredResponse> ResponseStore::get(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  return found == entries_.end() ? std::nullopt : std::optional(found->second.response);
}

bool ResponseStore::erase(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) {
    return false;
  }
  num_bytes_ -= found->second.bytes;
  ages_.erase(found->second.age);
  entries_.erase(found);
  return true;
}

std::int64_t ResponseStore::num_bytes() const {
  const std::lock_guard lock(mutex_);
  return num_bytes_;
}

}  // namespace nibble::server
