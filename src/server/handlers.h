// The handlers, one for each endpoint. They get requests that passed the router: the model is
// loaded, the key is right.
#pragma once

#include "server/api_context.h"
#include "server/http.h"

namespace nibble::server {

struct Call {
  ApiContext& context;
  Loaded& loaded;
  const HttpRequest& request;
  const ExchangePtr& exchange;
};

void chat_completions(const Call& call);
void completions(const Call& call);
void messages(const Call& call);
void count_tokens(const Call& call);
void responses(const Call& call);
void get_response(const Call& call);
void delete_response(const Call& call);
void cancel_response(const Call& call);
void models(const Call& call);
void tokenize(const Call& call);
void detokenize(const Call& call);
void embeddings(const Call& call);
void metrics(const Call& call);

}  // namespace nibble::server
