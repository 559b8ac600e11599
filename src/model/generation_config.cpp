#include <filesystem>

#include "base/error.h"
#include "base/mapped_file.h"
#include "model/config.h"
#include "model/json_fields.h"

namespace nibble::model {

Result<GenerationDefaults> load_generation_defaults(const std::string& folder,
                                                    const ModelConfig& config) {
  GenerationDefaults out;
  out.eos_ids = config.eos_ids;
  const std::string path = folder + "/generation_config.json";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return out;
  }
  NIBBLE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  return parse_generation_defaults(
      path, {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, config);
}

Result<GenerationDefaults> parse_generation_defaults(const std::string& path, std::string_view json,
                                                     const ModelConfig& config) {
  GenerationDefaults out;
  out.eos_ids = config.eos_ids;
  NIBBLE_ASSIGN_OR_RETURN(const nlohmann::json object, parse_object(path, json));
  JsonFields fields(path, object);
  const IntRange ids = {0, config.vocab - 1};
  if (fields.has("eos_token_id")) {
    out.eos_ids = fields.ids("eos_token_id", ids);
  }
  out.bos_id = fields.integer_or("bos_token_id", out.bos_id, ids);
  out.pad_id = fields.integer_or("pad_token_id", out.pad_id, ids);
  out.temperature = static_cast<float>(fields.number_or("temperature", out.temperature, {0, 100}));
  out.top_p = static_cast<float>(fields.number_or("top_p", out.top_p, {1e-6, 1}));
  out.top_k = fields.integer_or("top_k", out.top_k, {0, 1 << 24});
  out.min_p = static_cast<float>(fields.number_or("min_p", out.min_p, {0, 1}));
  out.repetition_penalty = static_cast<float>(
      fields.number_or("repetition_penalty", out.repetition_penalty, {1e-3, 1e3}));
  out.do_sample = fields.boolean_or("do_sample", out.do_sample);
  NIBBLE_RETURN_IF_ERROR(fields.status());
  return out;
}

}  // namespace nibble::model
