#include "model/step_graphs.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <span>

#include "base/error.h"
#include "kernels/attention/attention_plan.h"

namespace nibble::model {
namespace {

// A graph of 36 layers takes a few MB of the device.
constexpr std::size_t kMostGraphs = 64;

std::span<const kernels::AttentionSequence> sequences_of(const StepRows& step) {
  return {step.host_inputs.sequences[0], static_cast<std::size_t>(step.num_sequences)};
}

}  // namespace

bool can_replay(const StepRows& step) {
  if (step.num_logit_rows != step.rows || step.num_sequences != step.rows) {
    return false;
  }
  const auto sequences = sequences_of(step);
  return std::all_of(sequences.begin(), sequences.end(),
                     [](const auto& sequence) { return sequence.num_rows == 1; });
}

StepGraphs::Shape StepGraphs::shape_of(const StepRows& step) {
  std::int32_t last = 0;
  for (const kernels::AttentionSequence& sequence : sequences_of(step)) {
    last = std::max(last, sequence.first_position);
  }
  const auto chunks = static_cast<std::uint32_t>(last / kernels::kGpuChunkKeys + 1);
  return {step.rows, std::bit_ceil(chunks)};
}

Status StepGraphs::run(const Shape& shape, Device& device, Stream stream, KernelTrace& trace,
                       const std::function<Status()>& enqueue) {
  if (steps_.size() > kMostGraphs) {
    steps_.clear();
  }
  Step& step = steps_[shape];
  if (!step.has_run) {  // loads the kernels, which a capture may not
    step.has_run = true;
    return enqueue();
  }
  if (step.graph.get() == nullptr) {
    const std::uint64_t before = trace.seen();
    NIBBLE_RETURN_IF_ERROR(device.begin_capture(stream));
    const Status enqueued = enqueue();
    Result<Device::Graph> captured = device.end_capture(stream);
    NIBBLE_RETURN_IF_ERROR(enqueued);
    NIBBLE_ASSIGN_OR_RETURN(step.graph, std::move(captured));
    step.kernels = trace.seen() & ~before;
  }
  trace.add(step.kernels);
  return device.launch(step.graph, stream);
}

}  // namespace nibble::model
