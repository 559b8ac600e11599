// What `nibble bench` prints: llama-bench's table, JSON, JSON lines and CSV, its field names first.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/commands/bench.h"
#include "nibble/status.h"

namespace nibble::cli {

struct BenchLine {
  commands::BenchRow row;
  std::string model;                                    // preset or folder name
  std::optional<commands::BenchComparison> comparison;  // with a baseline
};

// "json", "jsonl", "csv" or "md"; each row is printed when it is there.
class BenchPrinter {
 public:
  // `options` decide which columns the table needs.
  BenchPrinter(std::string format, const commands::BenchOptions& options, bool has_baseline);

  // What stands before the first row, the row, and what stands after the last.
  std::string begin() const;
  std::string row(const BenchLine& line);
  std::string end() const;

 private:
  struct Column {
    std::string title;
    std::size_t width = 0;
    bool is_right = true;
  };
  std::string table_row(const BenchLine& line) const;

  std::string format_;
  bool has_baseline_;
  bool shows_batch_;
  bool shows_ubatch_;
  bool shows_streams_;
  bool shows_activation_;
  bool shows_cache_;
  std::vector<Column> columns_;
  int num_rows_ = 0;
};

// Reads what `-o json` wrote (a list of rows). `path` is for messages. kCorrupt names the row and
// the field.
Result<std::vector<commands::BenchBaseline>> parse_baseline(const std::string& path,
                                                            std::string_view json);

// "tg128 @ d512: 90.1 tok/s, baseline 101.3, noise 2.0".
std::string comparison_text(const BenchLine& line);

}  // namespace nibble::cli
