#include "model/model.h"

#include "base/error.h"

namespace nibble::model {
namespace {

Status cannot_sample() {
  return error(Code::kUnsupported, "this model gives logits only: its tokens are chosen elsewhere");
}

}  // namespace

Status Model::start(const BatchPlan& /*plan*/, const SampleBatch& /*batch*/) {
  return cannot_sample();
}
Result<std::span<const std::int32_t>> Model::finish() { return cannot_sample(); }
Status Model::copy_logits(std::int32_t /*logit_row*/, std::span<float> /*logits*/) {
  return cannot_sample();
}

}  // namespace nibble::model
