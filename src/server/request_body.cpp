#include "server/request_body.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <limits>

namespace nibble::server {
namespace {

constexpr std::int64_t kMostInt32 = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t kMostStops = 64;
constexpr std::size_t kMostStopBytes = 1024;

std::optional<float> real(Fields& fields, const char* name, double low, double high) {
  const std::optional<double> value = fields.real(name, low, high);
  return value ? std::optional(static_cast<float>(*value)) : std::nullopt;
}

void read_logit_bias(Fields& fields, SamplingParams& sampling) {
  const Json* biases = fields.object("logit_bias");
  if (biases == nullptr) {
    return;
  }
  for (const auto& [key, bias] : biases->items()) {
    std::int32_t id = 0;
    const auto [end, fault] = std::from_chars(key.data(), key.data() + key.size(), id);
    const bool is_id = fault == std::errc() && end == key.data() + key.size();
    if (!is_id || !bias.is_number()) {
      fields.refuse(bad_request("logit_bias",
                                "logit_bias: want an object of token ids and numbers from -100 to "
                                "100, found another key or value"));
      return;
    }
    sampling.logit_bias.emplace_back(id, bias.get<float>());
  }
}

void read_stops(Fields& fields, Request& request) {
  const Json* stop = fields.any("stop");
  if (stop == nullptr) {
    return;
  }
  const auto is_stop = [](const Json& one) {
    return one.is_string() && !one.get_ref<const std::string&>().empty() &&
           one.get_ref<const std::string&>().size() <= kMostStopBytes;
  };
  if (is_stop(*stop)) {
    request.stop = {stop->get<std::string>()};
  } else if (stop->is_array() && stop->size() <= kMostStops &&
             std::all_of(stop->begin(), stop->end(), is_stop)) {
    request.stop = stop->get<std::vector<std::string>>();
  } else {
    fields.fail("stop", fmt::format("a string, or at most {} of them, each of 1 to {} bytes",
                                    kMostStops, kMostStopBytes));
  }
}

}  // namespace

void read_sampling(Fields& fields, Request& request) {
  SamplingParams& sampling = request.sampling;
  sampling.temperature = real(fields, "temperature", 0.0, 100.0);
  sampling.top_p = real(fields, "top_p", 0.0, 1.0);
  if (const auto top_k = fields.integer("top_k", -1, kMostInt32)) {
    sampling.top_k = static_cast<std::int32_t>(std::max<std::int64_t>(*top_k, 0));
  }
  sampling.min_p = real(fields, "min_p", 0.0, 1.0);
  sampling.repetition_penalty = real(fields, "repetition_penalty", 0.0, 1000.0);
  sampling.presence_penalty = real(fields, "presence_penalty", -2.0, 2.0).value_or(0.0F);
  sampling.frequency_penalty = real(fields, "frequency_penalty", -2.0, 2.0).value_or(0.0F);
  read_logit_bias(fields, sampling);
  if (const auto seed = fields.integer("seed", 0, std::numeric_limits<std::int64_t>::max())) {
    sampling.seed = static_cast<std::uint64_t>(*seed);
  }
  read_stops(fields, request);
  request.stop_token_ids = fields.ids("stop_token_ids");
  request.min_tokens =
      static_cast<std::int32_t>(fields.integer("min_tokens", 0, kMostInt32).value_or(0));
  request.ignore_eos = fields.boolean("ignore_eos").value_or(false);
}

void read_model(Fields& fields, const ApiContext& context) {
  const std::optional<std::string> name = fields.text("model");
  const auto& names = context.options.model_names;
  if (name.has_value() && std::find(names.begin(), names.end(), *name) == names.end()) {
    fields.refuse(
        {404,
         fmt::format("model: want {}, found '{}'", fmt::join(names, " or "), name->substr(0, 200)),
         "invalid_request_error", "model", "model_not_found"});
  }
}

void read_max_tokens(Fields& fields, std::initializer_list<const char*> names, std::int64_t least,
                     Request& request) {
  for (const char* name : names) {
    if (const auto value = fields.integer(name, least, kMostInt32)) {
      request.max_tokens = static_cast<std::int32_t>(*value);
      request.max_tokens_must_fit = true;  // a default that does not ends earlier
      return;
    }
  }
}

void read_format(Fields& format, Request& request) {
  using Kind = ResponseFormat::Kind;
  const auto type = format.choice("type", {"text", "json_object", "json_schema"});
  if (!type.has_value()) {
    format.fail("type", "text, json_object or json_schema");
    return;
  }
  request.response_format.kind = *type == "text"          ? Kind::kText
                                 : *type == "json_object" ? Kind::kJsonObject
                                                          : Kind::kJsonSchema;
  if (*type == "json_schema") {
    const Json* schema = format.object("schema");
    if (schema == nullptr) {
      format.fail("schema", "a JSON schema");
      return;
    }
    request.response_format.schema_json = dump(*schema);
    request.response_format.name = format.text("name").value_or("");
    request.response_format.description = format.text("description").value_or("");
  }
}

void read_constraints(Fields& fields, Request& request) {
  for (const char* name : {"guided_json", "guided_regex", "guided_choice", "guided_grammar",
                           "structured_outputs", "grammar", "json_schema"}) {
    fields.refuse_unless_idle(name, "not supported; want response_format");
  }
  const Json* format = fields.object("response_format");
  if (format == nullptr) {
    return;
  }
  std::optional<ApiError> fault;
  const auto nested = format->find("json_schema");
  if (nested != format->end() && nested->is_object()) {
    Json flat = *nested;
    flat["type"] = format->value("type", Json());
    Fields inner(flat, "response_format.json_schema.", fault);
    read_format(inner, request);
  } else {
    Fields inner(*format, "response_format.", fault);
    read_format(inner, request);
  }
  if (fault.has_value()) {
    fields.refuse(*fault);
  }
}

StreamOptions read_stream(Fields& fields) {
  StreamOptions out;
  out.is_stream = fields.boolean("stream").value_or(false);
  const Json* options = fields.object("stream_options");
  if (options != nullptr && !out.is_stream) {
    fields.refuse(bad_request("stream_options", "stream_options: want it with stream only"));
  } else if (options != nullptr && options->contains("include_usage")) {
    out.includes_usage = (*options)["include_usage"] == true;
  }
  return out;
}

}  // namespace nibble::server
