#include "api/commands/quantize.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "api/commands/expert_convert.h"
#include "api/commands/expert_form.h"
#include "api/commands/journaled_writer.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "base/thread_pool.h"

namespace nibble::commands {
namespace {

namespace fs = std::filesystem;
using formats::ScaleRounding;
using weights::TensorSpec;

constexpr std::int64_t kCopyBytes = std::int64_t{4} << 20U;
constexpr const char* kCopiedFiles[] = {
    "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "chat_template.jinja",    "LICENSE",        "USAGE_POLICY"};

Result<ExpertFormat> parse_format(const std::string& format) {
  if (const std::optional<ExpertFormat> form = find_expert_format(format)) {
    return *form;
  }
  return error(Code::kInvalidArgument, "--format: want mxfp4, nvfp4 or bf16, found \"{}\"", format);
}

Result<ScaleRounding> parse_rounding(const std::string& name, ExpertFormat to) {
  const bool is_nvfp4 = to == ExpertFormat::kNvfp4;
  if (name == "least-error") {
    return ScaleRounding::kLeastError;
  }
  if (name == "up") {
    return ScaleRounding::kUp;
  }
  if (name == "ocp" && !is_nvfp4) {
    return ScaleRounding::kOcpFloor;
  }
  if (name == "nearest" && is_nvfp4) {
    return ScaleRounding::kNearestEven;
  }
  return error(Code::kInvalidArgument,
               "--scale-rounding for {}: want least-error, up or {}, found "
               "\"{}\"",
               model::expert_format_name(to), is_nvfp4 ? "nearest" : "ocp", name);
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::span<const std::byte> data_of(const weights::Checkpoint::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.view.data),
          static_cast<std::size_t>(tensor.view.bytes())};
}

// Error sums as the journal keeps them: exact, and independent of the locale.
std::string to_record(const ConversionError& e) {
  char text[256];
  std::snprintf(text, sizeof(text), "%a %a %a %lld %lld %lld", e.max_abs, e.sum_squared,
                e.sum_squared_value, static_cast<long long>(e.num_elems),
                static_cast<long long>(e.num_saturated),
                static_cast<long long>(e.num_zeroed_blocks));
  return text;
}

ConversionError from_record(const std::string& record) {
  ConversionError e;
  long long elems = 0;
  long long saturated = 0;
  long long zeroed = 0;
  (void)std::sscanf(record.c_str(), "%la %la %la %lld %lld %lld", &e.max_abs, &e.sum_squared,
                    &e.sum_squared_value, &elems, &saturated, &zeroed);
  e.num_elems = elems;
  e.num_saturated = saturated;
  e.num_zeroed_blocks = zeroed;
  return e;
}

QuantizeTensor to_row(const std::string& name, const ConversionError& e) {
  const double count = static_cast<double>(std::max<std::int64_t>(1, e.num_elems));
  return {name,
          e.max_abs,
          std::sqrt(e.sum_squared / count),
          std::sqrt(e.sum_squared_value / count),
          e.num_saturated,
          e.num_zeroed_blocks};
}

class Conversion {
 public:
  static Result<QuantizeReport> run(const QuantizeOptions& options,
                                    const QuantizeProgress& progress);

 private:
  explicit Conversion(const QuantizeOptions& options, const QuantizeProgress& progress)
      : options_(options), progress_(progress), pool_(options.num_threads) {}

  Status open_source();
  Status plan_target();
  Result<std::string> identity() const;
  Status convert_all(JournaledWriter& writer);
  Status convert_stack(const ExpertStack& stack, JournaledWriter& writer);
  Status write_expert(const ExpertStack& stack, std::int64_t e, const ConvertedExpert& out,
                      JournaledWriter& writer);
  Status copy_tensor(const TensorSpec& spec, JournaledWriter& writer);
  StoredExpert stored(const ExpertStack& stack, std::int64_t e) const;
  Status advance(std::int64_t bytes);
  Status write_config() const;
  Status copy_files() const;

  const QuantizeOptions& options_;
  const QuantizeProgress& progress_;
  ThreadPool pool_;
  std::optional<weights::Checkpoint> source_;
  model::ModelConfig config_;
  ExpertFormat from_ = ExpertFormat::kBf16Transposed;
  ExpertFormat to_ = ExpertFormat::kMxfp4;
  ScaleRounding rounding_ = ScaleRounding::kLeastError;
  std::vector<TensorSpec> target_;
  std::int64_t bytes_done_ = 0;
  std::int64_t bytes_total_ = 0;
  QuantizeReport report_;
};

Status Conversion::open_source() {
  NIBBLE_ASSIGN_OR_RETURN(to_, parse_format(options_.format));
  if (to_ != ExpertFormat::kBf16Transposed) {
    NIBBLE_ASSIGN_OR_RETURN(rounding_, parse_rounding(options_.scale_rounding, to_));
  }
  NIBBLE_ASSIGN_OR_RETURN(config_, model::load_config(options_.source));
  if (config_.naming != model::Naming::kHuggingFace) {
    return error(Code::kUnsupported,
                 "{}: want Hugging Face tensor names, found OpenAI's original ones",
                 options_.source);
  }
  NIBBLE_ASSIGN_OR_RETURN(source_, weights::Checkpoint::open(options_.source));
  NIBBLE_ASSIGN_OR_RETURN(from_, model::detect_expert_format(config_, *source_));
  if (from_ == to_) {
    return error(Code::kUnsupported, "{}: want experts in another form than {}, found them in it",
                 options_.source, options_.format);
  }
  const weights::MatchReport fit = weights::match(model::tensor_list(config_, from_), *source_);
  if (!fit.ok()) {
    return error(Code::kCorrupt, "{}", fit.summary(options_.source));
  }
  std::error_code ignored;
  if (fs::equivalent(options_.source, options_.destination, ignored)) {
    return error(Code::kInvalidArgument,
                 "destination: want another folder than the source, found {}",
                 options_.destination);
  }
  return {};
}

// Tensors outside the experts keep the dtype they have.
Status Conversion::plan_target() {
  target_ = model::tensor_list(config_, to_);
  for (TensorSpec& spec : target_) {
    if (const weights::Checkpoint::Tensor* tensor = source_->find(spec.name)) {
      spec.dtypes = {tensor->view.dtype};
    }
  }
  return {};
}

// Changes when the source's files or anything that shapes the output changes.
Result<std::string> Conversion::identity() const {
  std::uint64_t hash = fnv1a(fmt::format("{} {} {}", options_.format, static_cast<int>(rounding_),
                                         options_.max_shard_bytes));
  NIBBLE_ASSIGN_OR_RETURN(const MappedFile config,
                          MappedFile::open(options_.source + "/config.json"));
  hash = fnv1a(as_text(config.bytes()), hash);
  std::vector<std::string> files;
  for (const auto& [name, tensor] : source_->tensors()) {
    files.push_back(tensor.file->file().path());
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  for (const std::string& file : files) {
    struct stat info {};
    if (::stat(file.c_str(), &info) != 0) {
      return error(Code::kNotFound, "{}: {}", file, std::strerror(errno));
    }
    hash = fnv1a(fmt::format("{} {} {}.{}", fs::path(file).filename().string(), info.st_size,
                             info.st_mtim.tv_sec, info.st_mtim.tv_nsec),
                 hash);
  }
  return fmt::format("{:016x}", hash);
}

Status Conversion::advance(std::int64_t bytes) {
  bytes_done_ += bytes;
  if (progress_ && !progress_(bytes_done_, bytes_total_)) {
    return error(Code::kCancelled,
                 "stopped after {} of {} bytes; the same command on {} goes on from there",
                 bytes_done_, bytes_total_, options_.destination);
  }
  return {};
}

StoredExpert Conversion::stored(const ExpertStack& stack, std::int64_t e) const {
  const std::vector<TensorSpec> names = model::stack_tensors(stack, from_);
  const auto share = [&](std::size_t part) {
    const std::span<const std::byte> all = data_of(*source_->find(names[part].name));
    const std::size_t each = all.size() / static_cast<std::size_t>(stack.num_experts);
    return all.subspan(static_cast<std::size_t>(e) * each, each);
  };
  StoredExpert in;
  in.values = share(0);
  if (names.size() > 1) {
    in.scales = share(1);
  }
  if (names.size() > 2) {
    std::memcpy(&in.global_scale, share(2).data(), sizeof(float));
  }
  return in;
}

Status Conversion::write_expert(const ExpertStack& stack, std::int64_t e,
                                const ConvertedExpert& out, JournaledWriter& writer) {
  const std::vector<TensorSpec> names = model::stack_tensors(stack, to_);
  const std::span<const std::byte> parts[] = {out.values, out.scales,
                                              std::as_bytes(std::span(&out.global_scale, 1))};
  for (std::size_t part = 0; part < names.size(); ++part) {
    const auto bytes = static_cast<std::int64_t>(parts[part].size());
    NIBBLE_RETURN_IF_ERROR(writer.write(names[part].name, e * bytes, parts[part]));
    NIBBLE_RETURN_IF_ERROR(advance(bytes));
  }
  return {};
}

Status Conversion::convert_stack(const ExpertStack& stack, JournaledWriter& writer) {
  if (const std::string* record = writer.record(stack.stem)) {
    report_.tensors.push_back(to_row(stack.stem, from_record(*record)));
    ++report_.num_resumed;
    for (const TensorSpec& spec : model::stack_tensors(stack, to_)) {
      NIBBLE_RETURN_IF_ERROR(advance(weights::spec_bytes(spec)));
    }
    return {};
  }
  ExpertConverter converter(from_, to_, rounding_, pool_);
  ConversionError total;
  ConvertedExpert out;
  for (std::int64_t e = 0; e < stack.num_experts; ++e) {
    const Result<ConversionError> one = converter.convert(stack, stored(stack, e), out);
    if (!one.has_value()) {
      return error(one.error().code(), "{} to {}: {}, expert {}: {}", options_.source,
                   options_.format, stack.stem, e, one.error().message());
    }
    total.add(*one);
    NIBBLE_RETURN_IF_ERROR(write_expert(stack, e, out, writer));
  }
  for (const TensorSpec& spec : model::stack_tensors(stack, from_)) {
    source_->drop(*source_->find(spec.name));
  }
  report_.tensors.push_back(to_row(stack.stem, total));
  return writer.finish(stack.stem, to_record(total));
}

Status Conversion::copy_tensor(const TensorSpec& spec, JournaledWriter& writer) {
  if (writer.record(spec.name) != nullptr) {
    ++report_.num_resumed;
    return advance(weights::spec_bytes(spec));
  }
  const weights::Checkpoint::Tensor& tensor = *source_->find(spec.name);
  const std::span<const std::byte> all = data_of(tensor);
  for (std::size_t at = 0; at < all.size(); at += kCopyBytes) {
    const auto piece = all.subspan(at, std::min<std::size_t>(kCopyBytes, all.size() - at));
    NIBBLE_RETURN_IF_ERROR(writer.write(spec.name, static_cast<std::int64_t>(at), piece));
    NIBBLE_RETURN_IF_ERROR(advance(static_cast<std::int64_t>(piece.size())));
  }
  source_->drop(tensor);
  return writer.finish(spec.name, "copied");
}

Status Conversion::convert_all(JournaledWriter& writer) {
  for (const TensorSpec& spec : target_) {
    bytes_total_ += weights::spec_bytes(spec);
  }
  const std::vector<ExpertStack> stacks = expert_stacks(config_);
  std::size_t next = 0;
  for (const TensorSpec& spec : target_) {
    if (source_->find(spec.name) != nullptr) {
      NIBBLE_RETURN_IF_ERROR(copy_tensor(spec, writer));
    } else if (next < stacks.size() && spec.name.starts_with(stacks[next].stem)) {
      NIBBLE_RETURN_IF_ERROR(convert_stack(stacks[next++], writer));
    }  // else a further tensor of the stack that was just converted
  }
  return {};
}

Status Conversion::write_config() const {
  const std::string from = options_.source + "/config.json";
  NIBBLE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(from));
  auto config = nlohmann::ordered_json::parse(as_text(file.bytes()), nullptr, false);
  if (!config.is_object()) {
    return error(Code::kCorrupt, "{}: want a JSON object, found {}", from, config.type_name());
  }
  config.erase("quantization_config");
  if (to_ != ExpertFormat::kBf16Transposed) {
    config["quantization_config"] = {{"quant_method", options_.format},
                                     {"modules_to_not_convert",
                                      {"model.layers.*.self_attn", "model.layers.*.mlp.router",
                                       "model.embed_tokens", "lm_head"}}};
  }
  const std::string to = options_.destination + "/config.json";
  std::ofstream out(to + ".partial", std::ios::binary | std::ios::trunc);
  out << config.dump(2) << '\n';
  out.close();
  if (!out || std::rename((to + ".partial").c_str(), to.c_str()) != 0) {
    return error(Code::kInternal, "{}: cannot write {} bytes", to, config.dump(2).size());
  }
  return {};
}

Status Conversion::copy_files() const {
  for (const char* name : kCopiedFiles) {
    std::error_code failure;
    const fs::path from = fs::path(options_.source) / name;
    if (!fs::exists(from, failure)) {
      continue;
    }
    fs::copy_file(from, fs::path(options_.destination) / name, fs::copy_options::overwrite_existing,
                  failure);
    if (failure) {
      return error(Code::kInternal, "{}: cannot copy to {}: {}", from.string(),
                   options_.destination, failure.message());
    }
  }
  return {};
}

Result<QuantizeReport> Conversion::run(const QuantizeOptions& options,
                                       const QuantizeProgress& progress) {
  Conversion conversion(options, progress);
  NIBBLE_RETURN_IF_ERROR(conversion.open_source());
  NIBBLE_RETURN_IF_ERROR(conversion.plan_target());
  NIBBLE_ASSIGN_OR_RETURN(const std::string identity, conversion.identity());
  NIBBLE_ASSIGN_OR_RETURN(JournaledWriter writer,
                          JournaledWriter::open(options.destination, conversion.target_,
                                                options.max_shard_bytes, identity));
  NIBBLE_RETURN_IF_ERROR(conversion.convert_all(writer));
  NIBBLE_RETURN_IF_ERROR(writer.publish());
  NIBBLE_RETURN_IF_ERROR(conversion.copy_files());
  NIBBLE_RETURN_IF_ERROR(conversion.write_config());
  NIBBLE_RETURN_IF_ERROR(writer.close());
  conversion.report_.from = model::expert_format_name(conversion.from_);
  conversion.report_.to = model::expert_format_name(conversion.to_);
  conversion.report_.bytes_written = writer.total_bytes();
  return std::move(conversion.report_);
}

}  // namespace

Result<QuantizeReport> quantize(const QuantizeOptions& options, const QuantizeProgress& progress) {
  return Conversion::run(options, progress);
}

}  // namespace nibble::commands
