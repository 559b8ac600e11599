#include "server/tool_filter.h"

#include <algorithm>

namespace nibble::server {

ToolFilter::ToolFilter(const std::vector<Tool>& tools) {
  names_.reserve(tools.size());
  for (const Tool& tool : tools) {
    names_.push_back(tool.name);
  }
}

bool ToolFilter::is_offered(const std::string& name) const {
  return std::find(names_.begin(), names_.end(), name) != names_.end();
}

bool ToolFilter::pass(Delta& delta) {
  switch (delta.kind) {
    case Delta::Kind::kContent: content_ += delta.text; return true;
    case Delta::Kind::kToolCallBegin:
      if (is_offered(delta.text)) {
        const auto offered = std::count_if(indices_.begin(), indices_.end(),
                                           [](std::int32_t index) { return index >= 0; });
        delta.tool_index = static_cast<std::int32_t>(offered);
        indices_.push_back(delta.tool_index);
        return true;
      }
      indices_.push_back(-1);
      if (content_.empty()) {
        return false;
      }
      delta = {.kind = Delta::Kind::kContent, .text = "\n\n"};
      content_ += delta.text;
      return true;
    case Delta::Kind::kToolCallArguments:
      delta.tool_index = indices_.at(static_cast<std::size_t>(delta.tool_index));
      if (delta.tool_index < 0) {
        delta.kind = Delta::Kind::kContent;
        content_ += delta.text;
      }
      return true;
    case Delta::Kind::kReasoning:
    case Delta::Kind::kTokens: return true;
  }
  return true;
}

void ToolFilter::pass(Response& response) {
  const auto calls = response.tool_calls.size();
  std::erase_if(response.tool_calls,
                [this](const ToolCall& call) { return !is_offered(call.name); });
  if (response.tool_calls.size() == calls) {
    return;
  }
  response.content = content_;
  if (response.tool_calls.empty() && response.finish_reason == FinishReason::kToolCalls) {
    response.finish_reason = FinishReason::kStop;
  }
}

}  // namespace nibble::server
