// How a token is computed on a GPU, as the model takes it.
#pragma once

#include "model/model.h"
#include "nibble/engine.h"

namespace nibble {

inline model::DecodePath model_decode_path(DecodePath path) {
  switch (path) {
    case DecodePath::kGraph: return model::DecodePath::kGraph;
    case DecodePath::kPersistent: return model::DecodePath::kPersistent;
    case DecodePath::kAuto: break;
  }
  return model::DecodePath::kAuto;
}

}  // namespace nibble
