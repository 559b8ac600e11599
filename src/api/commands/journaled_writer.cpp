#include "api/commands/journaled_writer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/disk_space.h"
#include "base/error.h"
#include "weights/checkpoint_index.h"

namespace nibble::commands {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kJournal = "quantize.journal";
constexpr std::string_view kTitle = "nibble quantize journal 1 ";
constexpr std::string_view kPartial = ".partial";
constexpr std::int64_t kSyncBytes = std::int64_t{64} << 20U;  // lost at most by a crash

bool is_empty_or_missing(const std::string& folder) {
  std::error_code failure;
  return !fs::exists(folder, failure) ||
         (fs::is_directory(folder, failure) && fs::is_empty(folder, failure));
}

std::string checksum(std::string_view line) { return fmt::format("{:016x}", fnv1a(line)); }

std::string journal_line(const std::string& unit, const std::string& record) {
  const std::string line = fmt::format("{}\t{}", unit, record);
  return fmt::format("{}\t{}\n", line, checksum(line));
}

}  // namespace

std::uint64_t fnv1a(std::string_view text, std::uint64_t seed) {
  for (const char letter : text) {
    seed = (seed ^ static_cast<unsigned char>(letter)) * 0x100000001B3U;
  }
  return seed;
}

struct JournaledWriter::File {
  std::string path;  // final
  std::string open_path;
  int fd = -1;
  bool is_dirty = false;

  ~File() {
    if (fd >= 0) {
      ::close(fd);
    }
  }

  Status open(int flags) {
    fd = ::open(open_path.c_str(), flags | O_CREAT | O_CLOEXEC, 0644);
    return fd >= 0 ? Status()
                   : error(Code::kInvalidArgument, "{}: cannot create: {}", open_path,
                           std::strerror(errno));
  }

  Status write(std::span<const std::byte> bytes, std::int64_t offset) {
    is_dirty = true;
    while (!bytes.empty()) {
      const ssize_t written = ::pwrite(fd, bytes.data(), bytes.size(), offset);
      if (written < 0 && errno == EINTR) {
        continue;
      }
      if (written < 0) {
        return error(errno == ENOSPC || errno == EDQUOT ? Code::kExhausted : Code::kInternal,
                     "{}: cannot write {} bytes: {}", open_path, bytes.size(),
                     std::strerror(errno));
      }
      offset += written;
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    return {};
  }

  Status write(std::string_view text, std::int64_t offset) {
    return write(std::as_bytes(std::span(text.data(), text.size())), offset);
  }

  Status sync() {
    if (is_dirty && ::fdatasync(fd) != 0) {
      return error(Code::kInternal, "{}: cannot sync: {}", open_path, std::strerror(errno));
    }
    is_dirty = false;
    return {};
  }

  std::int64_t bytes() const {
    struct stat info {};
    return ::fstat(fd, &info) == 0 ? static_cast<std::int64_t>(info.st_size) : -1;
  }
};

JournaledWriter::JournaledWriter(JournaledWriter&&) noexcept = default;

JournaledWriter::~JournaledWriter() {
  if (!files_.empty()) {
    (void)sync();  // fails: the units since the last sync are done again
  }
}

std::string JournaledWriter::journal_path() const {
  return fmt::format("{}/{}", folder_, kJournal);
}

Result<JournaledWriter> JournaledWriter::open(const std::string& folder,
                                              std::span<const weights::TensorSpec> specs,
                                              std::int64_t max_shard_bytes,
                                              const std::string& identity) {
  JournaledWriter writer;
  writer.folder_ = folder;
  writer.plan_ = weights::plan_shards(specs, {.max_shard_bytes = max_shard_bytes});
  const bool is_new = is_empty_or_missing(folder);
  std::error_code failure;
  if (!is_new && !fs::exists(writer.journal_path(), failure)) {
    return error(Code::kInvalidArgument,
                 "{}: want an empty or new folder or an unfinished run, found {}", folder,
                 fs::is_directory(folder, failure) ? "one with files and no journal" : "a file");
  }
  fs::create_directories(folder, failure);
  if (failure) {
    return error(Code::kInvalidArgument, "{}: cannot create: {}", folder, failure.message());
  }
  NIBBLE_RETURN_IF_ERROR(writer.lock_folder());
  if (is_new) {
    NIBBLE_RETURN_IF_ERROR(check_disk_space(folder, writer.plan_.total_bytes));
    NIBBLE_RETURN_IF_ERROR(writer.write_journal(identity));  // first: it makes the folder ours
  } else {
    NIBBLE_RETURN_IF_ERROR(writer.read_journal(identity));
  }
  NIBBLE_RETURN_IF_ERROR(writer.open_files());
  NIBBLE_RETURN_IF_ERROR(writer.write_journal(identity));
  auto journal = std::make_unique<File>();
  journal->path = journal->open_path = writer.journal_path();
  NIBBLE_RETURN_IF_ERROR(journal->open(O_WRONLY));
  writer.files_.push_back(std::move(journal));
  return writer;
}

// Two runs in one folder would tear each other's files.
Status JournaledWriter::lock_folder() {
  lock_ = std::make_unique<File>();
  lock_->fd = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_->fd < 0 || ::flock(lock_->fd, LOCK_EX | LOCK_NB) != 0) {
    return error(Code::kInvalidArgument, "{}: cannot lock the folder, is another run at work? {}",
                 folder_, std::strerror(errno));
  }
  return {};
}

Status JournaledWriter::open_files() {
  for (const weights::Shard& shard : plan_.shards) {
    auto file = std::make_unique<File>();
    file->path = folder_ + "/" + shard.file;
    std::error_code ignored;
    file->open_path =
        fs::exists(file->path, ignored) ? file->path : file->path + std::string(kPartial);
    NIBBLE_RETURN_IF_ERROR(file->open(O_RDWR));
    const std::int64_t found = file->bytes();
    if (found != 0 && found != shard.bytes() && !records_.empty()) {
      return error(Code::kCorrupt, "{}: want {} bytes as the journal says, found {}",
                   file->open_path, shard.bytes(), found);
    }
    if (found == 0) {
      records_.clear();  // the file went missing: begin again
    }
    if (::ftruncate(file->fd, shard.bytes()) != 0) {
      return error(Code::kExhausted, "{}: cannot make room for {} bytes: {}", file->open_path,
                   shard.bytes(), std::strerror(errno));
    }
    NIBBLE_RETURN_IF_ERROR(file->write(shard.head, 0));
    auto at = static_cast<std::int64_t>(shard.head.size());
    for (const weights::TensorSpec* spec : shard.tensors) {
      places_[spec->name] = {files_.size(), at};
      at += weights::spec_bytes(*spec);
    }
    files_.push_back(std::move(file));
  }
  return {};
}

Status JournaledWriter::read_journal(const std::string& identity) {
  std::ifstream in(journal_path(), std::ios::binary);
  std::string line;
  if (!std::getline(in, line) || in.eof() || !line.starts_with(kTitle)) {
    return {};  // cut before the first record: nothing is done yet
  }
  if (line.substr(kTitle.size()) != identity) {
    return error(Code::kInvalidArgument,
                 "{}: holds an unfinished run {} of another source or other options, wanted {}: "
                 "repeat that one or remove the folder",
                 folder_, line.substr(kTitle.size()), identity);
  }
  while (std::getline(in, line)) {
    const std::size_t first = line.find('\t');
    const std::size_t last = line.rfind('\t');
    if (first == std::string::npos || first == last ||
        line.substr(last + 1) != checksum(std::string_view(line).substr(0, last))) {
      break;
    }
    records_[line.substr(0, first)] = line.substr(first + 1, last - first - 1);
  }
  return {};
}

// Written anew with the records that hold, so that a torn end never hides later lines.
Status JournaledWriter::write_journal(const std::string& identity) {
  const std::string path = journal_path();
  const std::string fresh = path + std::string(kPartial);
  std::ofstream out(fresh, std::ios::binary | std::ios::trunc);
  out << kTitle << identity << '\n';
  for (const auto& [unit, record] : records_) {
    out << journal_line(unit, record);
  }
  out.close();
  if (!out || std::rename(fresh.c_str(), path.c_str()) != 0) {
    return error(Code::kInternal, "{}: cannot write: {}", path, std::strerror(errno));
  }
  return {};
}

const std::string* JournaledWriter::record(const std::string& unit) const {
  const auto found = records_.find(unit);
  return found == records_.end() ? nullptr : &found->second;
}

Status JournaledWriter::write(const std::string& tensor, std::int64_t offset,
                              std::span<const std::byte> bytes) {
  const auto place = places_.find(tensor);
  if (place == places_.end()) {
    return error(Code::kInvalidArgument, "tensor {}: not among the {} of the plan", tensor,
                 places_.size());
  }
  pending_bytes_ += static_cast<std::int64_t>(bytes.size());
  return files_[place->second.file]->write(bytes, place->second.begin + offset);
}

Status JournaledWriter::finish(const std::string& unit, const std::string& record) {
  pending_lines_ += journal_line(unit, record);
  records_[unit] = record;
  return pending_bytes_ >= kSyncBytes ? sync() : Status();
}

// Data first, then the lines that claim it.
Status JournaledWriter::sync() {
  if (pending_lines_.empty()) {
    return {};
  }
  for (const std::unique_ptr<File>& file : files_) {
    NIBBLE_RETURN_IF_ERROR(file->sync());
  }
  File& journal = *files_.back();
  NIBBLE_RETURN_IF_ERROR(journal.write(pending_lines_, journal.bytes()));
  pending_lines_.clear();
  pending_bytes_ = 0;
  return journal.sync();
}

Status JournaledWriter::publish() {
  NIBBLE_RETURN_IF_ERROR(sync());
  for (std::size_t i = 0; i + 1 < files_.size(); ++i) {
    File& file = *files_[i];
    NIBBLE_RETURN_IF_ERROR(file.sync());
    if (file.open_path != file.path &&
        std::rename(file.open_path.c_str(), file.path.c_str()) != 0) {
      return error(Code::kInternal, "{}: cannot finish the file: {}", file.path,
                   std::strerror(errno));
    }
    file.open_path = file.path;
  }
  if (!plan_.index.empty()) {
    File index;
    index.path = index.open_path = folder_ + "/" + std::string(weights::kIndexFile);
    NIBBLE_RETURN_IF_ERROR(index.open(O_WRONLY | O_TRUNC));
    NIBBLE_RETURN_IF_ERROR(index.write(plan_.index, 0));
    NIBBLE_RETURN_IF_ERROR(index.sync());
  }
  return {};
}

Status JournaledWriter::close() {
  files_.clear();
  if (std::remove(journal_path().c_str()) != 0) {
    return error(Code::kInternal, "{}: cannot remove: {}", journal_path(), std::strerror(errno));
  }
  return {};
}

}  // namespace nibble::commands
