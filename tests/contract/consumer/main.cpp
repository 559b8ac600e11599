// A program of somebody else: sees the public headers only.
#include <nibble/status.h>

#include <cstdio>

int main() {
  const nibble::Status status(nibble::Code::kNotFound, "want a model, found none");
  std::printf("%.*s: %s\n", static_cast<int>(nibble::name(status.code()).size()),
              nibble::name(status.code()).data(), status.message().c_str());
  return status.ok() ? 1 : 0;
}
