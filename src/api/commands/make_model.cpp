#include "api/commands/make_model.h"

#include <fmt/ranges.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "api/commands/presets.h"
#include "base/error.h"
#include "model/random_weights.h"
#include "model/tensor_list.h"
#include "text/tokenizer.h"
#include "weights/writer.h"

namespace nibble::commands {
namespace {

namespace fs = std::filesystem;

constexpr std::int32_t kMaxLayers = 1024;
constexpr std::int64_t kMinShardBytes = std::int64_t{1} << 10;
constexpr const char* kTokenizerFiles[] = {"tokenizer.json", "tokenizer_config.json",
                                           "special_tokens_map.json", "chat_template.jinja"};

Result<Preset> choose_preset(const MakeModelOptions& options) {
  std::optional<Preset> preset = find_preset(options.preset);
  if (!preset) {
    return error(Code::kInvalidArgument, "--preset: want one of {}, found \"{}\"",
                 fmt::join(preset_names(), ", "), options.preset);
  }
  if (options.num_layers < 0 || options.num_layers > kMaxLayers) {
    return error(Code::kInvalidArgument, "--layers: want 0 to {}, found {}", kMaxLayers,
                 options.num_layers);
  }
  if (options.max_shard_bytes < kMinShardBytes) {
    return error(Code::kInvalidArgument, "shard size: want at least {} bytes, found {}",
                 kMinShardBytes, options.max_shard_bytes);
  }
  if (options.num_layers > 0) {
    set_layers(*preset, options.num_layers);
  }
  return *std::move(preset);
}

// The tokenizer must fit the vocabulary; its special tokens replace the preset's ids.
Status adopt_tokenizer(const std::string& folder, Preset& preset) {
  NIBBLE_ASSIGN_OR_RETURN(const text::Tokenizer tokenizer, text::Tokenizer::load(folder));
  if (tokenizer.vocab_size() > preset.config.vocab) {
    return error(Code::kInvalidArgument,
                 "{}/tokenizer.json: want ids below the vocabulary of {}, {}; found {}", folder,
                 preset.name, preset.config.vocab, tokenizer.vocab_size() - 1);
  }
  const std::pair<const char*, std::int32_t*> ids[] = {{"<|startoftext|>", &preset.ids.bos},
                                                       {"<|endoftext|>", &preset.ids.end_of_text},
                                                       {"<|return|>", &preset.ids.end_of_turn},
                                                       {"<|call|>", &preset.ids.call}};
  for (const auto& [spelling, id] : ids) {
    if (const std::int32_t found = tokenizer.special_id(spelling); found >= 0) {
      *id = found;
    }
  }
  return {};
}

Status prepare_folder(const std::string& folder) {
  std::error_code failure;
  if (folder.empty()) {
    return error(Code::kInvalidArgument, "destination: want a folder, found an empty name");
  }
  if (fs::exists(folder, failure) &&
      (!fs::is_directory(folder, failure) || !fs::is_empty(folder, failure))) {
    return error(Code::kInvalidArgument, "{}: want an empty or new folder, found {}", folder,
                 fs::is_directory(folder, failure) ? "one with files" : "a file");
  }
  fs::create_directories(folder, failure);
  if (failure) {
    return error(Code::kInvalidArgument, "{}: cannot create: {}", folder, failure.message());
  }
  return {};
}

Status write_text(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  return out ? Status() : error(Code::kInternal, "{}: cannot write {} bytes", path, text.size());
}

Status copy_tokenizer(const std::string& from, const std::string& to) {
  for (const char* name : kTokenizerFiles) {
    std::error_code failure;
    if (!fs::exists(fs::path(from) / name, failure)) {
      continue;
    }
    fs::copy_file(fs::path(from) / name, fs::path(to) / name, failure);
    if (failure) {
      return error(Code::kInternal, "{}/{}: cannot copy to {}: {}", from, name, to,
                   failure.message());
    }
  }
  return {};
}

Status write_files(const MakeModelOptions& options, const Preset& preset,
                   const weights::WriteProgress& progress) {
  const std::vector<weights::TensorSpec> specs =
      model::tensor_list(preset.config, model::ExpertFormat::kMxfp4);
  const auto fill = [&](const weights::TensorSpec& spec, std::int64_t offset,
                        std::span<std::byte> out) {
    return model::fill_random(options.seed, spec, offset, out);
  };
  NIBBLE_RETURN_IF_ERROR(weights::write_checkpoint(
      options.destination, specs, fill, {.max_shard_bytes = options.max_shard_bytes}, progress));
  if (!options.tokenizer_folder.empty()) {
    NIBBLE_RETURN_IF_ERROR(copy_tokenizer(options.tokenizer_folder, options.destination));
  }
  NIBBLE_RETURN_IF_ERROR(
      write_text(options.destination + "/generation_config.json", generation_config_json(preset)));
  return write_text(options.destination + "/config.json", config_json(preset));
}

// `folder` was empty or absent before, so that everything in it is ours.
void remove_files(const std::string& folder, bool keeps_folder) {
  std::error_code ignored;
  if (!keeps_folder) {
    fs::remove_all(folder, ignored);
    return;
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    fs::remove(entry.path(), ignored);
  }
}

}  // namespace

Result<MakeModelPlan> plan_model(const MakeModelOptions& options) {
  NIBBLE_ASSIGN_OR_RETURN(const Preset preset, choose_preset(options));
  const std::vector<weights::TensorSpec> specs =
      model::tensor_list(preset.config, model::ExpertFormat::kMxfp4);
  const weights::WriteOptions write = {.max_shard_bytes = options.max_shard_bytes};
  MakeModelPlan plan;
  plan.num_shards = weights::checkpoint_shards(specs, write);
  plan.total_bytes =
      weights::checkpoint_bytes(specs, write) +
      static_cast<std::int64_t>(config_json(preset).size() + generation_config_json(preset).size());
  for (const weights::TensorSpec& spec : specs) {
    const TensorView view{nullptr, spec.dtypes.front(), spec.shape};
    plan.tensors.push_back(
        {spec.name, std::string(dtype_name(view.dtype)), shape_text(spec.shape), view.bytes()});
  }
  return plan;
}

Status make_model(const MakeModelOptions& options,
                  const std::function<bool(std::int64_t done, std::int64_t total)>& progress) {
  NIBBLE_ASSIGN_OR_RETURN(Preset preset, choose_preset(options));
  if (!options.tokenizer_folder.empty()) {
    NIBBLE_RETURN_IF_ERROR(adopt_tokenizer(options.tokenizer_folder, preset));
  }
  std::error_code ignored;
  const bool was_there = fs::exists(options.destination, ignored);
  NIBBLE_RETURN_IF_ERROR(prepare_folder(options.destination));
  Status status = write_files(options, preset, progress);
  if (!status.ok()) {
    remove_files(options.destination, was_there);
  }
  return status;
}

}  // namespace nibble::commands
