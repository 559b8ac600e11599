// Text in aligned columns.
#pragma once

#include <string>
#include <vector>

namespace nibble::cli {

class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  void add_column(Column column) { columns_.push_back(std::move(column)); }
  // One cell for each column.
  void add_row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  // Titles (unless all are empty) and rows, two blanks between columns, none at the ends of lines.
  std::string text() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace nibble::cli
