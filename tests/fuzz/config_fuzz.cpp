// Any bytes as `config.json`: refused in one line, or every tensor that the config asks for has
// extents of at least 1 whose bits 63 bits can count.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "model/config.h"
#include "model/tensor_list.h"

namespace nibble::model {
namespace {

void require(bool claim, const std::string& message) {
  if (!claim) {
    std::fprintf(stderr, "%s\n", message.c_str());
    std::abort();
  }
}

void check_specs(const ModelConfig& config) {
  for (const weights::TensorSpec& spec : tensor_list(config, ExpertFormat::kMxfp4)) {
    std::int64_t bits = 32;
    for (const std::int64_t extent : spec.shape) {
      require(extent >= 1 && !__builtin_mul_overflow(bits, extent, &bits), spec.name);
    }
  }
}

void run(const std::uint8_t* data, std::size_t num_bytes) {
  const Result<ModelConfig> config =
      parse_config("fuzz", {reinterpret_cast<const char*>(data), num_bytes});
  if (!config) {
    const Status& status = config.error();
    require((status.code() == Code::kCorrupt || status.code() == Code::kUnsupported) &&
                status.message().starts_with("fuzz: ") &&
                status.message().find('\n') == std::string::npos,
            "bad refusal: " + status.message());
    return;
  }
  require(config->num_layers == static_cast<std::int32_t>(config->is_window_layer.size()),
          "layer types");
  require(config->num_heads % config->num_kv_heads == 0 && config->top_k <= config->num_experts,
          "fields that do not fit together");
  check_specs(*config);
}

}  // namespace
}  // namespace nibble::model

// NOLINTNEXTLINE(readability-identifier-naming): the fuzzer calls it by this name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t num_bytes) {
  nibble::model::run(data, num_bytes);
  return 0;
}
