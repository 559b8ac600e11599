// What the decode kernel is given.
#pragma once

#include "kernels/decode/device/decode_exchange.cuh"

namespace nibble::kernels::device {

struct DecodeParams {
  DecodeStepArgs args;  // its span of layers is not used: they follow
  DecodeExchange exchange;
  DecodeLayer layers[kDecodeMaxLayers];
};

}  // namespace nibble::kernels::device
