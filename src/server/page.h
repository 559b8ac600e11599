// The page at `/`: plain files that the program holds, each also compressed. No key is needed: they
// say nothing about the model.
#pragma once

#include "server/http.h"

namespace nibble::server {

// Replies when the request is a GET or HEAD of one of the page's files: the file, compressed for
// clients that take gzip, or 304 when they have it. False, without a reply, for anything else.
bool answer_page(const HttpRequest& request, Exchange& exchange);

}  // namespace nibble::server
