#include "api/commands/inspect.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "model/config.h"
#include "model/tensor_list.h"
#include "weights/checkpoint.h"

namespace nibble::commands {
namespace {

namespace fs = std::filesystem;

bool is_expert(std::string_view name) {
  return name.find(".mlp.experts.") != std::string_view::npos ||
         name.find(".mlp.mlp1_") != std::string_view::npos ||
         name.find(".mlp.mlp2_") != std::string_view::npos;
}
bool is_scales(std::string_view name) {
  return name.ends_with("_scales") || name.ends_with(".scales") ||
         name.ends_with("_weight_scale") || name.ends_with("_weight_scale_2");
}
bool is_embedding(std::string_view name) {
  return name == "model.embed_tokens.weight" || name == "embedding.weight";
}

// Fills the report piece by piece; what cannot be read becomes a problem.
class Inspector {
 public:
  explicit Inspector(const std::string& folder) { report_.folder = folder; }

  Result<InspectReport> run() {
    read_config();
    read_tensors();
    if (!config_ && report_.tensors.empty()) {
      return first_failure_;
    }
    if (config_ && checkpoint_) {
      compare();
    }
    return std::move(report_);
  }

 private:
  void add_problem(const Status& status) {
    if (first_failure_.ok()) {
      first_failure_ = status;
    }
    const auto& all = report_.problems;
    if (std::find(all.begin(), all.end(), status.message()) == all.end()) {
      report_.problems.push_back(status.message());
    }
  }

  void set_experts(model::ExpertFormat experts) {
    report_.experts = experts;
    report_.quantisation = experts == model::ExpertFormat::kBf16Transposed
                               ? "none (bf16)"
                               : std::string(model::expert_format_name(experts));
  }

  void read_config() {
    Result<model::ModelConfig> config = model::load_config(report_.folder);
    if (!config) {
      add_problem(config.error());
      return;
    }
    config_ = std::move(config).value();
    report_.architecture = config_->architecture;
    report_.naming = config_->naming == model::Naming::kOpenAi ? "openai" : "hugging face";
    set_experts(model::configured_expert_format(*config_));
    list_config();
    if (auto defaults = model::load_generation_defaults(report_.folder, *config_); !defaults) {
      add_problem(defaults.error());
    }
  }

  void list_config() {
    const model::ModelConfig& config = *config_;
    const auto windows =
        std::count(config.is_window_layer.begin(), config.is_window_layer.end(), true);
    report_.config = {
        {"layers",
         fmt::format("{} ({} with a window of {})", config.num_layers, windows, config.window)},
        {"hidden", std::to_string(config.hidden)},
        {"intermediate", std::to_string(config.intermediate)},
        {"experts", fmt::format("{}, {} a token", config.num_experts, config.top_k)},
        {"heads", fmt::format("{} over {} key/value heads of {}", config.num_heads,
                              config.num_kv_heads, config.head_dim)},
        {"vocabulary", std::to_string(config.vocab)},
        {"positions", std::to_string(config.max_position)},
        {"rope",
         fmt::format("theta {}, factor {}, original {}, beta {} to {}{}", config.rope.theta,
                     config.rope.factor, config.rope.original_max_position, config.rope.beta_slow,
                     config.rope.beta_fast, config.rope.truncate ? ", truncated" : "")},
        {"rms norm eps", fmt::format("{}", config.rms_norm_eps)},
        {"swiglu", fmt::format("alpha {}, limit {}", config.swiglu_alpha, config.swiglu_limit)}};
  }

  void read_tensors() {
    Result<weights::Checkpoint> checkpoint = weights::Checkpoint::open(report_.folder);
    if (!checkpoint) {
      add_problem(checkpoint.error());
      read_files_alone();
      return;
    }
    checkpoint_ = std::move(checkpoint).value();
    report_.file_bytes = checkpoint_->file_bytes();
    for (const auto& [name, tensor] : checkpoint_->tensors()) {
      add_tensor(name, tensor.view, tensor.file->file().path());
    }
  }

  // The folder as a whole is not valid: shows what its files hold one by one.
  void read_files_alone() {
    std::set<std::string> paths;
    std::error_code failure;
    for (fs::directory_iterator it(report_.folder, failure), end; !failure && it != end;
         it.increment(failure)) {
      const std::string name = it->path().filename().string();
      if (name.starts_with("model") && name.ends_with(".safetensors")) {
        paths.insert(it->path().string());
      }
    }
    for (const std::string& path : paths) {
      const Result<weights::SafetensorsFile> file = weights::SafetensorsFile::open(path);
      if (!file) {
        add_problem(file.error());
        continue;
      }
      report_.file_bytes += static_cast<std::int64_t>(file->file().bytes().size());
      for (const weights::TensorEntry& entry : file->header().tensors) {
        add_tensor(entry.name, file->view(entry), path);
      }
    }
  }

  void add_tensor(const std::string& name, const TensorView& view, const std::string& path) {
    report_.tensors.push_back({name, std::string(dtype_name(view.dtype)), shape_text(view.shape),
                               view.bytes(), fs::path(path).filename().string()});
    (is_expert(name) ? report_.expert_bytes : report_.dense_bytes) += view.bytes();
    if (is_scales(name)) {
      return;
    }
    const std::int64_t parameters = view.num_elems() * (view.dtype == DType::kU8 ? 2 : 1);
    report_.parameters += parameters;
    if (!config_) {
      return;
    }
    report_.active_parameters += is_expert(name)
                                     ? parameters / config_->num_experts * config_->top_k
                                 : is_embedding(name) ? config_->hidden
                                                      : parameters;
  }

  void compare() {
    const Result<model::ExpertFormat> experts = model::detect_expert_format(*config_, *checkpoint_);
    if (!experts) {
      add_problem(experts.error());
    } else {
      set_experts(*experts);
    }
    // Without a sign in layer 0, the config says what to look for.
    const std::vector<weights::TensorSpec> wanted = model::tensor_list(
        *config_, experts ? *experts : model::configured_expert_format(*config_));
    for (std::string& problem : weights::match(wanted, *checkpoint_).problems) {
      report_.problems.push_back(std::move(problem));
    }
    sort_tensors(wanted);
  }

  // Into the order of the model; tensors that it does not want come last, by name.
  void sort_tensors(const std::vector<weights::TensorSpec>& wanted) {
    std::map<std::string_view, std::size_t> places;
    for (const weights::TensorSpec& spec : wanted) {
      places.emplace(spec.name, places.size());
    }
    const auto place = [&](const InspectTensor& tensor) {
      const auto found = places.find(tensor.name);
      return found == places.end() ? places.size() : found->second;
    };
    std::stable_sort(
        report_.tensors.begin(), report_.tensors.end(),
        [&](const InspectTensor& a, const InspectTensor& b) { return place(a) < place(b); });
  }

  InspectReport report_;
  Status first_failure_;
  std::optional<model::ModelConfig> config_;
  std::optional<weights::Checkpoint> checkpoint_;
};

}  // namespace

Result<InspectReport> inspect(const std::string& folder) { return Inspector(folder).run(); }

}  // namespace nibble::commands
