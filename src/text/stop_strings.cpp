#include "text/stop_strings.h"

#include <algorithm>

namespace nibble::text {

StopStrings::Stop::Stop(std::string stop) : text(std::move(stop)), fallback(text.size(), 0) {
  std::size_t border = 0;
  for (std::size_t i = 1; i < text.size(); ++i) {
    while (border > 0 && text[i] != text[border]) {
      border = fallback[border - 1];
    }
    border += text[i] == text[border] ? 1 : 0;
    fallback[i] = border;
  }
}

bool StopStrings::Stop::advance(char byte) {
  while (matched > 0 && byte != text[matched]) {
    matched = fallback[matched - 1];
  }
  matched += byte == text[matched] ? 1 : 0;
  return matched == text.size();
}

StopStrings::StopStrings(std::vector<std::string> stops) {
  for (std::string& stop : stops) {
    if (!stop.empty()) {
      stops_.emplace_back(std::move(stop));
    }
  }
}

const StopStrings::Stop* StopStrings::advance(char byte) {
  const Stop* complete = nullptr;
  for (Stop& stop : stops_) {
    if (stop.advance(byte) && (complete == nullptr || stop.text.size() > complete->text.size())) {
      complete = &stop;
    }
  }
  return complete;
}

bool StopStrings::push(std::string_view text, std::string& out) {
  if (done_) {
    return true;
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (const Stop* complete = advance(text[i]); complete != nullptr) {
      held_.append(text.substr(0, i + 1));
      const std::size_t hidden = include_match_ ? 0 : complete->text.size();
      out.append(held_, 0, held_.size() - hidden);
      held_.clear();
      matched_ = complete->text;
      done_ = true;
      return true;
    }
  }
  std::size_t withheld = 0;
  for (const Stop& stop : stops_) {
    withheld = std::max(withheld, stop.matched);
  }
  held_.append(text);
  out.append(held_, 0, held_.size() - withheld);
  held_.erase(0, held_.size() - withheld);
  return false;
}

void StopStrings::finish(std::string& out) {
  out.append(held_);
  held_.clear();
  for (Stop& stop : stops_) {
    stop.matched = 0;
  }
}

}  // namespace nibble::text
