// What went wrong, as the API says it: {"error":{"message","type","param","code"}}.
#pragma once

#include <string>

#include "nibble/status.h"
#include "server/http.h"

namespace nibble::server {

struct ApiError {
  int status = 500;
  std::string message;
  std::string type = "server_error";
  std::string param;  // the field at fault; empty: none
  std::string code;   // empty: null
};

ApiError bad_request(std::string param, std::string message);
ApiError not_found(std::string message);
// A field that is known and valid, but that this server cannot serve.
ApiError not_supported(std::string param, std::string message);
// A message that begins with "field: " names the field.
ApiError from_status(const Status& status);

std::string error_json(const ApiError& error);
HttpReply error_reply(const ApiError& error);
// llama.cpp's form, for what is not ready.
HttpReply unavailable_reply(const std::string& message);

}  // namespace nibble::server
