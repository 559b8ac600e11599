// A program of somebody else, seeing the public headers only: answers one question with the model
// in the folder that it is given.
#include <nibble/capabilities.h>
#include <nibble/engine.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 2 || !nibble::capabilities().can_run) {
    return 2;
  }
  if (nibble::Engine::load({.model = "/no/such/model"}).has_value()) {
    return 3;
  }
  nibble::Result<nibble::Engine> engine = nibble::Engine::load({.model = argv[1]});
  if (!engine) {
    std::fprintf(stderr, "%s\n", engine.error().message().c_str());
    return 4;
  }
  nibble::Request request;
  request.prompt = nibble::ChatPrompt{.messages = {{.content = "Hello"}}};
  request.sampling.temperature = 0.0F;
  request.max_tokens = 64;
  const nibble::Result<nibble::Response> response = engine->generate(request);
  if (!response) {
    std::fprintf(stderr, "%s\n", response.error().message().c_str());
    return 5;
  }
  std::printf("%s\n", response->content.c_str());
  return response->ids.empty() ? 6 : 0;
}
