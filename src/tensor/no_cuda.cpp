// open_cuda() of a build without CUDA.
#include "base/error.h"
#include "tensor/device.h"

namespace nibble {

Result<std::unique_ptr<Device>> open_cuda(int index) {
  return error(Code::kUnsupported,
               "GPU {} wanted, but this build has no CUDA kernels; configure with -DNIBBLE_CUDA=ON",
               index);
}

}  // namespace nibble
