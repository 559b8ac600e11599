#include "cli/flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "cli/model_path.h"

namespace nibble::cli {
namespace {

constexpr std::int32_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();
constexpr const char* kModelGroup = "Model";
constexpr const char* kInputGroup = "Input";
constexpr const char* kSamplingGroup = "Sampling";

// A flag whose value `parse` turns into what `store` keeps; wrong values are usage errors.
template <typename Parse, typename Store>
CLI::Option* add_parsed(CLI::App& app, const Flag& flag, Parse parse, Store store) {
  CLI::Option* option = app.add_option_function<std::string>(
      flag.names, [parse, store](const std::string& text) { store(parse(text).value()); },
      flag.description);
  const auto check = [parse](std::string& text) {
    const auto parsed = parse(text);
    return parsed ? std::string() : parsed.error().message();
  };
  return option->check(CLI::Validator(check, "", ""))->type_name(flag.type)->take_last();
}

}  // namespace

CLI::Option* add_text(CLI::App& app, const Flag& flag, std::string& target) {
  return app.add_option(flag.names, target, flag.description)->type_name(flag.type)->take_last();
}

CLI::Option* add_text(CLI::App& app, const Flag& flag, std::optional<std::string>& target) {
  return app
      .add_option_function<std::string>(
          flag.names, [&target](const std::string& text) { target = text; }, flag.description)
      ->type_name(flag.type)
      ->take_last();
}

CLI::Option* add_texts(CLI::App& app, const Flag& flag, std::vector<std::string>& target) {
  return app.add_option(flag.names, target, flag.description)
      ->type_name(flag.type)
      ->take_all()
      ->allow_extra_args(false);
}

CLI::Option* add_switch(CLI::App& app, const char* names, bool& target, const char* description) {
  return app.add_flag(names, target, description)->take_last();
}

CLI::Option* add_real(CLI::App& app, const Flag& flag, RealRange range,
                      std::optional<float>& target) {
  return add_parsed(
      app, flag, [range](const std::string& text) { return parse_real(text, range); },
      [&target](float value) { target = value; });
}

CLI::Option* add_integer(CLI::App& app, const Flag& flag, IntRange range, std::int32_t& target) {
  return add_parsed(
      app, flag, [range](const std::string& text) { return parse_integer(text, range); },
      [&target](std::int64_t value) { target = static_cast<std::int32_t>(value); });
}

CLI::Option* add_count(CLI::App& app, const Flag& flag, IntRange range, std::int64_t& target) {
  return add_parsed(
      app, flag, [range](const std::string& text) { return parse_count(text, range); },
      [&target](std::int64_t value) { target = value; });
}

CLI::Option* add_seed(CLI::App& app, std::optional<std::uint64_t>& target) {
  return add_parsed(
      app, {"-s,--seed", "N", "seed of the random choices; without it a fresh one"},
      [](const std::string& text) { return parse_seed(text); },
      [&target](std::uint64_t value) { target = value; });
}

CLI::Option* add_ids(CLI::App& app, std::optional<std::vector<std::int32_t>>& target,
                     const char* description) {
  return add_parsed(
      app, {"--ids", "1,2,3", description}, [](const std::string& text) { return parse_ids(text); },
      [&target](std::vector<std::int32_t> ids) { target = std::move(ids); });
}

CLI::Option* add_choice(CLI::App& app, const Flag& flag, const std::vector<std::string>& choices,
                        std::string& target) {
  const auto parse = [choices](const std::string& text) -> Result<std::string> {
    if (std::find(choices.begin(), choices.end(), text) != choices.end()) {
      return text;
    }
    return error(Code::kInvalidArgument, "want {}, found '{}'", fmt::join(choices, " or "), text);
  };
  CLI::Option* option =
      add_parsed(app, flag, parse, [&target](std::string value) { target = std::move(value); });
  // For completions: a name has no other use.
  option->get_validator(0)->name(fmt::format("{}", fmt::join(choices, "|")));
  return option;
}

CLI::Option* add_device(CLI::App& app, std::string& device) {
  return add_choice(app,
                    {"--device", "auto|cpu|cuda",
                     "where the model is computed (default: the GPU if it can be used)"},
                    {"auto", "cpu", "cuda"}, device);
}

DeviceChoice device_choice(const std::string& device) {
  if (device == "auto") {
    return DeviceChoice::kAuto;
  }
  return device == "cuda" ? DeviceChoice::kCuda : DeviceChoice::kCpu;
}

CLI::Option* add_load_format(CLI::App& app, std::string& format) {
  return add_choice(app,
                    {"--load-format", "auto|dummy",
                     "dummy: random weights; MODEL is a folder with config.json, or a\npreset of "
                     "`nibble make-model` (default: the folder's files)"},
                    {"auto", "dummy"}, format);
}

LoadFormat load_format(const std::string& format) {
  return format == "dummy" ? LoadFormat::kDummy : LoadFormat::kFiles;
}

CLI::Option* add_activation(CLI::App& app, std::string& activation) {
  return add_choice(
      app,
      {"--activation,--act", "bf16|f32|int8",
       "rounding of the inputs of products: bf16 is as served (default),\nf32 as the "
       "reference computes, int8 as bf16 but for MXFP4 experts\non a processor, whose "
       "inputs become 8-bit numbers in blocks of 32"},
      {"bf16", "f32", "int8"}, activation);
}

Activation activation_of(const std::string& activation) {
  if (activation == "f32") {
    return Activation::kF32;
  }
  return activation == "int8" ? Activation::kInt8 : Activation::kBf16;
}

CLI::Option* add_kv_cache(CLI::App& app, std::string& cache) {
  return add_choice(app,
                    {"--kv-cache-dtype", "auto|fp8|fp8_e4m3",
                     "keys and values as e4m3 with a scale for each head and position,\nhalf the "
                     "memory of bf16 (default: as activations)"},
                    {"auto", "fp8", "fp8_e4m3"}, cache);
}

KvCacheType kv_cache_of(const std::string& cache) {
  return cache == "auto" ? KvCacheType::kAuto : KvCacheType::kFp8;
}

CLI::Option* add_decode_path(CLI::App& app, std::string& path) {
  return add_choice(
      app,
      {"--decode-path", "auto|graph|persistent",
       "one token on a GPU: graph is a graph of single kernels, persistent\none kernel, or the "
       "reason why not (default: persistent where it\ncan be, else graph)"},
      {"auto", "graph", "persistent"}, path);
}

DecodePath decode_path_of(const std::string& path) {
  if (path == "auto") {
    return DecodePath::kAuto;
  }
  return path == "graph" ? DecodePath::kGraph : DecodePath::kPersistent;
}

void add_model_name(CLI::App& app, std::string& model) {
  add_text(app,
           {"-m,--model,MODEL", "MODEL",
            "folder of a checkpoint, or a name in the Hugging Face cache\n(default: the demo)"},
           model)
      ->group(kModelGroup);
}

void add_model_flags(CLI::App& app, ModelFlags& flags) {
  add_model_name(app, flags.model);
  EngineOptions& engine = flags.engine;
  add_parsed(
      app,
      {"-c,--max-model-len,--ctx-size", "N",
       "context limit in tokens, such as 8192 or 8k\n(default: the model's, lowered to what memory "
       "allows)"},
      [](const std::string& text) {
        return parse_count(text, {0, kMaxInt32});
      },
      [&engine](std::int64_t value) { engine.max_model_len = static_cast<std::int32_t>(value); })
      ->group(kModelGroup);
  add_integer(app, {"-t,--threads", "N", "processor threads (default: all)"}, {0, 4096},
              engine.num_threads)
      ->group(kModelGroup);
  add_activation(app, flags.activation)->group(kModelGroup);
  add_kv_cache(app, flags.kv_cache)->group(kModelGroup);
  add_device(app, flags.device)->group(kModelGroup);
  add_load_format(app, flags.load_format)->group(kModelGroup);
  add_switch(
      app, "--deterministic,--enable-deterministic-inference", engine.is_deterministic,
      "the same answer whatever else runs, to the bit, or refuse:\nalways so on the processor, "
      "not on a GPU")
      ->group(kModelGroup);
  add_switch(app, "--no-enable-prefix-caching", flags.forgets_prefixes,
             "compute every prompt in full, shared beginnings included")
      ->group(kModelGroup);
  add_decode_path(app, flags.decode_path)->group(kModelGroup);
  add_switch(app, "--reference-kernels", engine.use_reference_kernels,
             "scalar reference kernels: slow, for checking")
      ->group(kModelGroup);
}

void add_input_flags(CLI::App& app, const char* what, InputFlags& flags) {
  add_text(app, {"-p,--prompt,--text", "TEXT", what}, flags.text)->group(kInputGroup);
  add_text(app, {"-f,--file", "FILE", "take the text from a file (-: standard input)"}, flags.file)
      ->group(kInputGroup);
  add_ids(app, flags.ids, "token ids instead of text")->group(kInputGroup);
}

void add_sampling_flags(CLI::App& app, SamplingParams& sampling) {
  constexpr double kMaxFactor = 1e4;
  const auto group = [](CLI::Option* option) { option->group(kSamplingGroup); };
  group(add_real(app, {"--temperature,--temp", "T", "0 always takes the most likely token"},
                 {0, kMaxFactor}, sampling.temperature));
  group(add_real(app, {"--top-p", "P", "keep the most likely tokens that sum up to P"},
                 {0, 1, true}, sampling.top_p));
  group(add_parsed(
      app, {"--top-k", "K", "keep the K most likely tokens; 0 or -1: all"},
      [](const std::string& text) {
        return parse_integer(text, {-1, kMaxInt32});
      },
      [&sampling](std::int64_t value) {
        sampling.top_k = static_cast<std::int32_t>(std::max<std::int64_t>(value, 0));
      }));
  group(add_real(app, {"--min-p", "P", "drop tokens below P times the largest probability"}, {0, 1},
                 sampling.min_p));
  group(add_real(app,
                 {"--repetition-penalty,--repeat-penalty", "F",
                  "divide the logits of tokens already seen; 1: off"},
                 {0, kMaxFactor, true}, sampling.repetition_penalty));
  const auto penalty = [&](const Flag& flag, float& target) {
    group(add_parsed(
        app, flag,
        [](const std::string& text) {
          return parse_real(text, {-2, 2});
        },
        [&target](float value) { target = value; }));
  };
  penalty({"--presence-penalty", "F", "subtract F for tokens already generated"},
          sampling.presence_penalty);
  penalty({"--frequency-penalty", "F", "subtract F for each time a token was generated"},
          sampling.frequency_penalty);
  group(add_seed(app, sampling.seed));
  const auto bias_check = [](std::string& text) {
    const auto bias = parse_bias(text);
    return bias ? std::string() : bias.error().message();
  };
  group(app.add_option_function<std::vector<std::string>>(
               "--logit-bias",
               [&sampling](const std::vector<std::string>& texts) {
                 for (const std::string& text : texts) {
                   sampling.logit_bias.push_back(parse_bias(text).value());
                 }
               },
               "add BIAS to the logit of token ID; may be repeated")
            ->check(CLI::Validator(bias_check, "", ""))
            ->type_name("ID=BIAS")
            ->take_all()
            ->allow_extra_args(false));
}

Result<std::string> find_model(const Host& host, const std::string& name, LoadFormat format) {
  Result<std::string> folder = find_model(name, model_places(host.executable));
  if (!folder && format == LoadFormat::kDummy) {
    const std::vector<std::string> presets = host.backend.preset_names();
    if (std::find(presets.begin(), presets.end(), name) != presets.end()) {
      return name;
    }
  }
  return folder;
}

EngineOptions engine_options(const ModelFlags& flags, const std::string& model) {
  EngineOptions options = flags.engine;
  options.model = model;
  options.load_format = load_format(flags.load_format);
  options.activation = activation_of(flags.activation);
  options.kv_cache = kv_cache_of(flags.kv_cache);
  options.device = device_choice(flags.device);
  options.decode_path = decode_path_of(flags.decode_path);
  options.enable_prefix_caching = !flags.forgets_prefixes;
  return options;
}

Outcome find_folder(const Host& host, const ModelFlags& flags) {
  const Result<std::string> folder = find_model(host, flags.model, load_format(flags.load_format));
  return folder ? done() : failed(folder.error(), During::kLoad);
}

Outcome failed_to_load(const Host& host, const Status& status, DeviceChoice device,
                       bool is_deterministic) {
  const bool is_hardware = status.code() == Code::kUnsupported &&
                           !host.backend.check_device(device, is_deterministic).ok();
  return failed(status, is_hardware ? During::kHardware : During::kLoad);
}

Outcome open_model(const Host& host, const ModelFlags& flags, std::unique_ptr<Session>& session) {
  const Result<std::string> folder = find_model(host, flags.model, load_format(flags.load_format));
  if (!folder) {
    return failed(folder.error(), During::kLoad);
  }
  Result<std::unique_ptr<Session>> loaded = host.backend.load(engine_options(flags, *folder));
  if (!loaded) {
    return failed_to_load(host, loaded.error(), device_choice(flags.device),
                          flags.engine.is_deterministic);
  }
  session = std::move(*loaded);
  return done();
}

Result<std::string> read_input(const Host& host, const std::string& path) {
  const bool is_standard = path == "-";
  errno = 0;
  std::FILE* file = is_standard ? host.in : std::fopen(path.c_str(), "rb");
  const std::string name = is_standard ? "standard input" : path;
  if (file == nullptr) {
    return error(Code::kNotFound, "{}: {}", name, std::strerror(errno));
  }
  std::string text;
  char buffer[1 << 16];
  while (const std::size_t count = std::fread(buffer, 1, sizeof buffer, file)) {
    text.append(buffer, count);
  }
  const int fault = std::ferror(file) != 0 ? errno : 0;
  if (!is_standard) {
    std::fclose(file);
  }
  if (fault != 0) {
    return error(Code::kInternal, "{}: {}", name, std::strerror(fault));
  }
  return text;
}

}  // namespace nibble::cli
