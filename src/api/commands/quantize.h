// `nibble quantize`: writes a checkpoint with its experts in another form (bf16, MXFP4, NVFP4);
// every other tensor is copied as it is.
//
// Streaming: one expert matrix at a time is in memory. Restartable: files grow as NAME.partial
// beside `quantize.journal`, which lists the tensors that are complete; a second call with the same
// arguments goes on from there, and one with other arguments is refused. All names become final at
// the end, config.json last but for the journal's removal.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "nibble/status.h"

namespace nibble::commands {

struct QuantizeOptions {
  std::string source;
  std::string destination;  // empty or new folder, or one with an unfinished run of these options
  std::string format;       // "mxfp4", "nvfp4", "bf16"
  // "least-error", "up", or the format's own third rule: "ocp" (mxfp4), "nearest" (nvfp4). Blocks
  // that a format holds exactly come back exactly under each of them for mxfp4, and under
  // least-error for nvfp4. Not used for bf16.
  std::string scale_rounding = "least-error";
  std::int32_t num_threads = 0;  // 0: every processor this process may use
  std::int64_t max_shard_bytes = std::int64_t{5} << 30;
};

// Difference between source and destination values of one expert tensor, in float32.
struct QuantizeTensor {
  std::string name;
  double max_abs_error = 0.0;
  double rms_error = 0.0;
  double rms_value = 0.0;              // of the source, for scale
  std::int64_t num_saturated = 0;      // elements past the end of the grid
  std::int64_t num_zeroed_blocks = 0;  // blocks too small for the scale's range
};

struct QuantizeReport {
  std::string from;  // "bf16", "mxfp4", "nvfp4"
  std::string to;
  std::vector<QuantizeTensor> tensors;  // in order of the checkpoint
  std::int64_t bytes_written = 0;       // of all weight files
  std::int64_t num_resumed = 0;         // tensors an earlier run had completed
};

// Returning false stops after the current piece: kCancelled, and a later call resumes.
using QuantizeProgress = std::function<bool(std::int64_t bytes_done, std::int64_t bytes_total)>;

// kInvalidArgument: arguments, or a destination that holds something else. kCorrupt: the source,
// also when an expert tensor holds NaN or Inf (named with its first index). kUnsupported: a source
// already in `format`, OpenAI's tensor names, sizes that do not divide into blocks, values that
// bf16 cannot hold. kExhausted: the disk, before anything is written.
Result<QuantizeReport> quantize(const QuantizeOptions& options, const QuantizeProgress& progress);

}  // namespace nibble::commands
