#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "formats/e4m3.h"
#include "formats/ue8m0.h"
#include "weights/checkpoint.h"
#include "weights/header_sax.h"

namespace nibble::weights {
namespace {

constexpr std::size_t kShownProblems = 5;

bool accepts(const TensorSpec& spec, DType dtype) {
  return std::find(spec.dtypes.begin(), spec.dtypes.end(), dtype) != spec.dtypes.end();
}

std::string dtype_list(const TensorSpec& spec) {
  std::vector<std::string_view> names;
  std::transform(spec.dtypes.begin(), spec.dtypes.end(), std::back_inserter(names), dtype_name);
  return fmt::format("{}", fmt::join(names, " or "));
}

std::string file_name(const Checkpoint::Tensor& tensor) {
  const std::string& path = tensor.file->file().path();
  return path.substr(path.rfind('/') + 1);
}

// A tensor of scales may hold no NaN, which would make a block of weights NaN, and no negative
// number, which no quantiser writes.
std::string find_bad_scale(const TensorSpec& spec, const TensorView& view,
                           const std::string& file) {
  const auto* begin = static_cast<const std::uint8_t*>(view.data);
  const std::uint8_t* end = begin + view.bytes();
  if (accepts(spec, DType::kUE8M0)) {
    const std::uint8_t* nan = std::find(begin, end, formats::kUe8m0NaN);
    return nan == end ? std::string()
                      : fmt::format("{} in {}: scale {} is byte 255 (NaN), want at most 254",
                                    spec.name, file, nan - begin);
  }
  if (accepts(spec, DType::kE4M3)) {
    const std::uint8_t* bad =
        std::find_if(begin, end, [](std::uint8_t code) { return code > formats::kE4m3MaxCode; });
    return bad == end ? std::string()
                      : fmt::format("{} in {}: scale {} is byte {} ({}), want at most {}",
                                    spec.name, file, bad - begin, *bad,
                                    (*bad & 0x7FU) == formats::kE4m3NaN ? "NaN" : "negative",
                                    formats::kE4m3MaxCode);
  }
  return {};
}

// Fault of the tensor that `spec` asks for, or nothing.
std::string find_fault(const TensorSpec& spec, const Checkpoint::Tensor* tensor) {
  if (tensor == nullptr) {
    return fmt::format("missing {} {} {}", spec.name, dtype_list(spec), shape_text(spec.shape));
  }
  const TensorView& view = tensor->view;
  const std::string file = file_name(*tensor);
  if (view.shape != spec.shape) {
    return fmt::format("{} in {}: want shape {}, found {}", spec.name, file, shape_text(spec.shape),
                       shape_text(view.shape));
  }
  if (!accepts(spec, view.dtype)) {
    return fmt::format("{} in {}: want {}, found {}", spec.name, file, dtype_list(spec),
                       dtype_name(view.dtype));
  }
  return find_bad_scale(spec, view, file);
}

}  // namespace

MatchReport match(std::span<const TensorSpec> wanted, const Checkpoint& checkpoint) {
  MatchReport report;
  std::set<std::string_view> names;
  for (const TensorSpec& spec : wanted) {
    names.insert(spec.name);
    if (std::string fault = find_fault(spec, checkpoint.find(spec.name)); !fault.empty()) {
      report.problems.push_back(std::move(fault));
    }
  }
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (!names.contains(name)) {
      report.problems.push_back(fmt::format("extra {} {} {} in {}", printable(name),
                                            dtype_name(tensor.view.dtype),
                                            shape_text(tensor.view.shape), file_name(tensor)));
    }
  }
  return report;
}

std::string MatchReport::summary(const std::string& folder) const {
  const std::size_t shown = std::min(problems.size(), kShownProblems);
  std::string out = fmt::format(
      "{}: {} {} not fit the config: {}", folder, problems.size(),
      problems.size() == 1 ? "tensor does" : "tensors do",
      fmt::join(problems.begin(), problems.begin() + static_cast<std::ptrdiff_t>(shown), "; "));
  if (shown < problems.size()) {
    out += fmt::format("; and {} more (see `nibble inspect`)", problems.size() - shown);
  }
  return out;
}

}  // namespace nibble::weights
