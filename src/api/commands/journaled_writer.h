// Writes a checkpoint in any order of its bytes and survives interruption: what `finish` has named
// is on the disk and need not be written again. The journal is text, one record a line:
//
//   nibble quantize journal 1 IDENTITY
//   NAME <tab> RECORD <tab> CHECKSUM of the line so far
//
// A last line cut short by a crash is ignored. Nothing carries its final name before `publish`.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nibble/status.h"
#include "weights/shard_plan.h"

namespace nibble::commands {

std::uint64_t fnv1a(std::string_view text, std::uint64_t seed = 0xCBF29CE484222325U);

class JournaledWriter {
 public:
  // `specs` must outlive the writer. Opens or begins a run in `folder`, which is created.
  // kInvalidArgument when it holds other files or a run with another identity, kExhausted when the
  // disk is too small for what is still missing.
  static Result<JournaledWriter> open(const std::string& folder,
                                      std::span<const weights::TensorSpec> specs,
                                      std::int64_t max_shard_bytes, const std::string& identity);

  JournaledWriter(JournaledWriter&&) noexcept;
  JournaledWriter& operator=(JournaledWriter&&) = delete;
  ~JournaledWriter();  // what was finished stays finished

  // Record of a finished unit, or null.
  const std::string* record(const std::string& unit) const;

  Status write(const std::string& tensor, std::int64_t offset, std::span<const std::byte> bytes);

  // Marks all writes since the last call as the unit's. `record` has no tab and no line end.
  Status finish(const std::string& unit, const std::string& record);

  // Gives the weight files their final names and writes the index.
  Status publish();
  // Ends the run: removes the journal. Other files are in place by now.
  Status close();

  std::int64_t total_bytes() const { return plan_.total_bytes; }

 private:
  struct File;
  struct Place {
    std::size_t file = 0;
    std::int64_t begin = 0;
  };
  JournaledWriter() = default;
  Status open_files();
  Status read_journal(const std::string& identity);
  Status write_journal(const std::string& identity);
  Status lock_folder();
  Status sync();
  std::string journal_path() const;

  std::string folder_;
  std::unique_ptr<File> lock_;
  weights::ShardPlan plan_;
  std::vector<std::unique_ptr<File>> files_;  // the journal is the last
  std::map<std::string, Place, std::less<>> places_;
  std::map<std::string, std::string> records_;
  std::string pending_lines_;
  std::int64_t pending_bytes_ = 0;
};

}  // namespace nibble::commands
