#include "support/golden_logits.h"

#include <gtest/gtest.h>

#include <cstring>

#include "weights/safetensors.h"

namespace nibble::testing_support {
namespace {

template <typename Element>
void read(const TensorView& view, std::vector<Element>& out) {
  out.resize(static_cast<std::size_t>(view.num_elems()));
  std::memcpy(out.data(), view.data, static_cast<std::size_t>(view.bytes()));
}

}  // namespace

std::map<std::string, GoldenSequence> read_golden(const std::string& path) {
  std::map<std::string, GoldenSequence> out;
  const Result<weights::SafetensorsFile> file = weights::SafetensorsFile::open(path);
  if (!file) {
    ADD_FAILURE() << file.error().message();
    return out;
  }
  for (const weights::TensorEntry& entry : file->header().tensors) {
    const std::size_t dot = entry.name.find('.');
    GoldenSequence& golden = out[entry.name.substr(0, dot)];
    const std::string field = entry.name.substr(dot + 1);
    const TensorView view = file->view(entry);
    if (field == "ids") {
      read(view, golden.ids);
    } else if (field == "positions") {
      read(view, golden.positions);
    } else if (field == "logits") {
      read(view, golden.logits);
    } else if (field == "argmax") {
      read(view, golden.argmax);
    } else if (field == "logprob_of_next") {
      read(view, golden.logprob_of_next);
    }
  }
  return out;
}

}  // namespace nibble::testing_support
