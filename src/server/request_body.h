// The fields that the endpoints share, from JSON to nibble::Request.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nibble/request.h"
#include "server/api_context.h"
#include "server/fields.h"

namespace nibble::server {

constexpr std::int64_t kMostChoices = 128;

// temperature, top_p, top_k, min_p, penalties, logit_bias, seed, stop, stop_token_ids, min_tokens,
// ignore_eos. Ranges that depend on the model are checked later, by the model.
void read_sampling(Fields& fields, Request& request);

// "model" must be one of the served names, if it is given.
void read_model(Fields& fields, const ApiContext& context);

// Request::max_tokens from the first of `names` that is given, at least `least`.
void read_max_tokens(Fields& fields, std::initializer_list<const char*> names, std::int64_t least,
                     Request& request);

// response_format, in which the schema may lie within "json_schema" (chats) or beside the type
// (responses). A form that cannot be asked for here is a refusal, never ignored.
void read_constraints(Fields& fields, Request& request);
void read_format(Fields& format, Request& request);

struct StreamOptions {
  bool is_stream = false;
  bool includes_usage = false;
};
StreamOptions read_stream(Fields& fields);

}  // namespace nibble::server
