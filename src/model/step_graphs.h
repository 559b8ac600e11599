// Steps of a device that are captured once and replayed: those whose launches depend on few
// numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "model/layer_pass.h"
#include "nibble/status.h"
#include "tensor/device.h"
#include "tensor/kernel_trace.h"

namespace nibble::model {

// A step in which every sequence computes one row whose logits are wanted.
bool can_replay(const StepRows& step);

class StepGraphs {
 public:
  // What launches depend on: rows, and chunks of the longest sequence rounded up to a power of two.
  using Shape = std::pair<std::int32_t, std::uint32_t>;
  static Shape shape_of(const StepRows& step);

  // The first step of a shape is enqueued, the second captured, the others replayed. `enqueue` does
  // nothing else than that on `stream`. Adds the step's kernels to `trace`.
  Status run(const Shape& shape, Device& device, Stream stream, KernelTrace& trace,
             const std::function<Status()>& enqueue);

 private:
  struct Step {
    bool has_run = false;
    Device::Graph graph;
    std::uint64_t kernels = 0;  // in the graph
  };
  std::map<Shape, Step> steps_;
};

}  // namespace nibble::model
