// Flags that several verbs share, with the names that users of vLLM and llama.cpp type.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/host.h"
#include "cli/parse.h"
#include "nibble/engine.h"
#include "nibble/sampling.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace nibble::cli {

// Names are CLI11's: "-n,--max-tokens". A flag given twice takes its last value.
struct Flag {
  const char* names;
  const char* type;  // shown in help: "N", "TEXT"
  const char* description;
};
CLI::Option* add_text(CLI::App& app, const Flag& flag, std::string& target);
CLI::Option* add_text(CLI::App& app, const Flag& flag, std::optional<std::string>& target);
// May be given several times.
CLI::Option* add_texts(CLI::App& app, const Flag& flag, std::vector<std::string>& target);
CLI::Option* add_switch(CLI::App& app, const char* names, bool& target, const char* description);
CLI::Option* add_real(CLI::App& app, const Flag& flag, RealRange range,
                      std::optional<float>& target);
CLI::Option* add_integer(CLI::App& app, const Flag& flag, IntRange range, std::int32_t& target);
CLI::Option* add_count(CLI::App& app, const Flag& flag, IntRange range, std::int64_t& target);
CLI::Option* add_seed(CLI::App& app, std::optional<std::uint64_t>& target);
CLI::Option* add_ids(CLI::App& app, std::optional<std::vector<std::int32_t>>& target,
                     const char* description);
CLI::Option* add_choice(CLI::App& app, const Flag& flag, const std::vector<std::string>& choices,
                        std::string& target);

// --device auto|cpu|cuda, and what it asks for.
CLI::Option* add_device(CLI::App& app, std::string& device);
DeviceChoice device_choice(const std::string& device);

// --load-format auto|dummy, and what it asks for.
CLI::Option* add_load_format(CLI::App& app, std::string& format);
LoadFormat load_format(const std::string& format);

// --activation, also --act: bf16 (as it begins), f32 or int8; and what it asks for.
CLI::Option* add_activation(CLI::App& app, std::string& activation);
Activation activation_of(const std::string& activation);

// --kv-cache-dtype: auto (as it begins), fp8 or fp8_e4m3, which are the same; and what it asks for.
CLI::Option* add_kv_cache(CLI::App& app, std::string& cache);
KvCacheType kv_cache_of(const std::string& cache);

// --decode-path auto|graph|persistent, and what it asks for.
CLI::Option* add_decode_path(CLI::App& app, std::string& path);
DecodePath decode_path_of(const std::string& path);

// MODEL, also -m and --model.
void add_model_name(CLI::App& app, std::string& model);

// MODEL and how it is loaded.
struct ModelFlags {
  std::string model;
  std::string activation = "bf16";
  std::string kv_cache = "auto";
  std::string device = "auto";
  std::string load_format = "auto";
  std::string decode_path = "auto";
  bool forgets_prefixes = false;
  EngineOptions engine;
};
void add_model_flags(CLI::App& app, ModelFlags& flags);

// Where the text of a verb comes from: -p, -f, --ids, or standard input when that is no terminal.
struct InputFlags {
  std::optional<std::string> text;
  std::optional<std::string> file;
  std::optional<std::vector<std::int32_t>> ids;
};
// `what` is what the text is called in help.
void add_input_flags(CLI::App& app, const char* what, InputFlags& flags);

void add_sampling_flags(CLI::App& app, SamplingParams& sampling);

// The folder that `name` means, or with dummy weights also a preset as it is.
Result<std::string> find_model(const Host& host, const std::string& name, LoadFormat format);

// The engine's options as the flags have them; `model` is what `find_model` found.
EngineOptions engine_options(const ModelFlags& flags, const std::string& model);

// Whether there is such a model at all: cheap, to be asked before any input is read.
Outcome find_folder(const Host& host, const ModelFlags& flags);

// Of a model that was not loaded: the hardware's fault where the device that was asked for is not
// there, or cannot keep answers apart from each other, as asked; else the model's.
Outcome failed_to_load(const Host& host, const Status& status, DeviceChoice device,
                       bool is_deterministic = false);

// Finds and loads the model.
Outcome open_model(const Host& host, const ModelFlags& flags, std::unique_ptr<Session>& session);

// The whole of a file, "-" being standard input.
Result<std::string> read_input(const Host& host, const std::string& path);

}  // namespace nibble::cli
