#include "cli/serving_flags.h"

#include <CLI/CLI.hpp>
#include <filesystem>

namespace nibble::cli {
namespace {

constexpr const char* kBatchGroup = "Batching";

}  // namespace

void add_batching_flags(CLI::App& verb, EngineOptions& engine) {
  engine.max_num_seqs = 16;
  const auto group = [](CLI::Option* option) { option->group(kBatchGroup); };
  group(add_integer(verb,
                    {"--max-num-seqs,--max-running-requests,--parallel", "N",
                     "requests computed together (default 16); -np also"},
                    {1, 4096}, engine.max_num_seqs));
  group(add_integer(
      verb,
      {"--max-num-batched-tokens,--chunked-prefill-size,--batch-size", "N",
       "tokens of one step; longer prompts are cut (default 512,\nup to 8192 on a GPU)"},
      {1, 1 << 16}, engine.max_batch_tokens));
  group(add_integer(verb, {"--block-size", "N", "tokens of a cache page (default 64)"},
                    {1, 1 << 16}, engine.page_size));
}

CLI::Option* add_served_names(CLI::App& verb, std::vector<std::string>& names) {
  return add_texts(verb,
                   {"--served-model-name", "NAME",
                    "what requests call the model (default: its folder's name);\nmay be repeated"},
                   names);
}

std::vector<std::string> served_names(const std::vector<std::string>& given,
                                      const ModelFlags& flags, const std::string& folder) {
  if (!given.empty()) {
    return given;
  }
  const bool is_named = !flags.model.empty() && !std::filesystem::exists(flags.model);
  const std::string name = std::filesystem::path(folder).lexically_normal().filename().string();
  return {is_named ? flags.model : name.empty() ? "model" : name};
}

}  // namespace nibble::cli
