#include "cli/table.h"

#include <algorithm>
#include <cstddef>

namespace nibble::cli {
namespace {

// Characters of UTF-8 text; wide ones are counted as one.
std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

std::string Table::text() const {
  std::vector<std::string> titles;
  for (const Column& column : columns_) {
    titles.push_back(column.title);
  }
  std::vector<std::vector<std::string>> lines = rows_;
  if (std::any_of(titles.begin(), titles.end(), [](const auto& title) { return !title.empty(); })) {
    lines.insert(lines.begin(), titles);
  }
  std::vector<std::size_t> widths(columns_.size(), 0);
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      widths[i] = std::max(widths[i], width(line[i]));
    }
  }
  std::string text;
  for (const auto& line : lines) {
    std::string row;
    for (std::size_t i = 0; i < line.size(); ++i) {
      const std::string blanks(widths[i] - width(line[i]), ' ');
      row += i == 0 ? "" : "  ";
      row += columns_[i].align == Align::kRight ? blanks + line[i] : line[i] + blanks;
    }
    row.erase(row.find_last_not_of(' ') + 1);
    text += row + "\n";
  }
  return text;
}

}  // namespace nibble::cli
