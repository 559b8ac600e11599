#include "weights/writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>
#include <utility>

#include "base/disk_space.h"
#include "base/error.h"
#include "weights/checkpoint_index.h"
#include "weights/shard_plan.h"

namespace nibble::weights {
namespace {

constexpr std::int64_t kChunkBytes = std::int64_t{4} << 20U;  // stays in the outer caches

// A file under a temporary name, removed unless `publish` succeeds.
class PendingFile {
 public:
  static Result<PendingFile> create(const std::string& path) {
    PendingFile file;
    file.path_ = path;
    file.fd_ = ::open(file.temporary().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file.fd_ < 0) {
      return error(Code::kInvalidArgument, "{}: cannot create: {}", file.temporary(),
                   std::strerror(errno));
    }
    return file;
  }

  PendingFile(PendingFile&& other) noexcept
      : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}
  PendingFile& operator=(PendingFile&&) = delete;
  ~PendingFile() {
    if (fd_ >= 0) {
      ::close(fd_);
      ::unlink(temporary().c_str());
    }
  }

  Status write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) {
        continue;
      }
      if (written < 0) {
        return error(errno == ENOSPC || errno == EDQUOT ? Code::kExhausted : Code::kInternal,
                     "{}: cannot write {} bytes: {}", path_, bytes.size(), std::strerror(errno));
      }
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    return {};
  }

  Status publish() {
    const std::string from = temporary();
    if (::close(std::exchange(fd_, -1)) != 0 || std::rename(from.c_str(), path_.c_str()) != 0) {
      const int reason = errno;
      ::unlink(from.c_str());
      return error(Code::kInternal, "{}: cannot finish the file: {}", path_, std::strerror(reason));
    }
    return {};
  }

 private:
  PendingFile() = default;
  std::string temporary() const { return path_ + ".partial"; }

  std::string path_;
  int fd_ = -1;
};

std::span<const std::byte> as_bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

Status check_names(std::span<const TensorSpec> tensors) {
  std::set<std::string_view> names;
  for (const TensorSpec& spec : tensors) {
    if (!names.insert(spec.name).second) {
      return error(Code::kInvalidArgument, "tensor {} is listed twice", spec.name);
    }
  }
  return {};
}

// Streams tensors through one buffer.
class Streamer {
 public:
  Streamer(const TensorFill& fill, const WriteProgress& progress, std::int64_t total)
      : fill_(fill), progress_(progress), total_(total), buffer_(kChunkBytes) {}

  Status write_text(const std::string& text, PendingFile& file) {
    NIBBLE_RETURN_IF_ERROR(file.write(as_bytes(text)));
    return advance(text.size());
  }

  Status write_tensor(const TensorSpec& spec, PendingFile& file) {
    const std::int64_t bytes = spec_bytes(spec);
    for (std::int64_t offset = 0; offset < bytes; offset += kChunkBytes) {
      const std::span<std::byte> chunk =
          std::span(buffer_).first(static_cast<std::size_t>(std::min(kChunkBytes, bytes - offset)));
      NIBBLE_RETURN_IF_ERROR(fill_(spec, offset, chunk));
      NIBBLE_RETURN_IF_ERROR(file.write(chunk));
      NIBBLE_RETURN_IF_ERROR(advance(chunk.size()));
    }
    return {};
  }

 private:
  Status advance(std::size_t bytes) {
    done_ += static_cast<std::int64_t>(bytes);
    if (progress_ && !progress_(done_, total_)) {
      return error(Code::kCancelled, "stopped after {} of {} bytes; nothing is left of them", done_,
                   total_);
    }
    return {};
  }

  const TensorFill& fill_;
  const WriteProgress& progress_;
  std::int64_t total_ = 0;
  std::int64_t done_ = 0;
  std::vector<std::byte> buffer_;
};

}  // namespace

std::int64_t checkpoint_bytes(std::span<const TensorSpec> tensors, const WriteOptions& options) {
  return plan_shards(tensors, options).total_bytes;
}

std::int64_t checkpoint_shards(std::span<const TensorSpec> tensors, const WriteOptions& options) {
  return static_cast<std::int64_t>(plan_shards(tensors, options).shards.size());
}

Status write_checkpoint(const std::string& folder, std::span<const TensorSpec> tensors,
                        const TensorFill& fill, const WriteOptions& options,
                        const WriteProgress& progress) {
  NIBBLE_RETURN_IF_ERROR(check_names(tensors));
  const ShardPlan plan = plan_shards(tensors, options);
  NIBBLE_RETURN_IF_ERROR(check_disk_space(folder, plan.total_bytes));
  Streamer streamer(fill, progress, plan.total_bytes);
  std::vector<PendingFile> files;  // published only when all are whole, the index last
  for (const Shard& shard : plan.shards) {
    NIBBLE_ASSIGN_OR_RETURN(PendingFile file, PendingFile::create(folder + "/" + shard.file));
    NIBBLE_RETURN_IF_ERROR(streamer.write_text(shard.head, file));
    for (const TensorSpec* spec : shard.tensors) {
      NIBBLE_RETURN_IF_ERROR(streamer.write_tensor(*spec, file));
    }
    files.push_back(std::move(file));
  }
  if (!plan.index.empty()) {
    NIBBLE_ASSIGN_OR_RETURN(PendingFile file,
                            PendingFile::create(folder + "/" + std::string(kIndexFile)));
    NIBBLE_RETURN_IF_ERROR(streamer.write_text(plan.index, file));
    files.push_back(std::move(file));
  }
  for (PendingFile& file : files) {
    NIBBLE_RETURN_IF_ERROR(file.publish());
  }
  return {};
}

}  // namespace nibble::weights
