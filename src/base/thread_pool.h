// One pool of pinned workers for the CPU kernels. A phase is one `run`: the body is called once
// with each worker's index, the caller is worker 0, and `run` returns when all calls are done (one
// barrier a phase).
//
// A worker whose processor is busy with something else does not hold up the phase: whoever is done
// with its own index takes over those not begun. So an index stands for a part of the work and for
// scratch memory, not for a thread.
//
// Workers spin briefly for the next phase, then sleep. `run` neither allocates nor locks while the
// workers are awake. One thread at a time may call `run`.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/memory_nodes.h"

namespace nibble {

// Half-open range of work items.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// Part `index` of `parts` nearly equal pieces of [0, count), cut at multiples of `grain`.
constexpr Range split_range(std::int64_t count, int parts, int index, std::int64_t grain = 1) {
  const std::int64_t grains = (count + grain - 1) / grain;
  const std::int64_t begin = grains * index / parts * grain;
  const std::int64_t end = grains * (index + 1) / parts * grain;
  return {begin < count ? begin : count, end < count ? end : count};
}

class ThreadPool {
 public:
  // `num_threads` workers, the caller included. 0: one for each processor that the affinity mask
  // and the container's CPU limit grant. Workers are pinned to distinct processors of the mask if
  // it has enough, node by node (place_workers()). The caller's own thread stays where it is.
  explicit ThreadPool(int num_threads = 0) : ThreadPool(num_threads, memory_nodes()) {}
  ThreadPool(int num_threads, const std::vector<MemoryNode>& nodes);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return num_threads_; }
  // Of memory near a worker: that of its processor, or 0 where workers are not pinned.
  int node_of(int worker) const { return places_.empty() ? 0 : places_[worker].node; }
  // Of the workers, in their order; empty where they are not pinned.
  std::vector<int> processors() const;
  bool has_several_nodes() const {
    return !places_.empty() && places_.front().node != places_.back().node;
  }

  // Calls body(worker) once for each worker 0 .. size() - 1 and waits for all.
  template <typename Body>
  void run(Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run_erased([](void* context, int worker) { (*static_cast<Plain*>(context))(worker); }, &body);
  }

  // Splits [0, count) over the workers in order: body(worker, Range).
  template <typename Body>
  void run_split(std::int64_t count, std::int64_t grain, Body&& body) {
    run([&](int worker) {
      const Range range = split_range(count, num_threads_, worker, grain);
      if (range.begin < range.end) {
        body(worker, range);
      }
    });
  }

 private:
  using Function = void (*)(void* context, int worker);
  struct alignas(64) Part {
    std::atomic<std::uint64_t> last_phase{0};  // in which somebody claimed it
  };

  void run_erased(Function function, void* context);
  bool claim(int part, std::uint64_t phase);
  // The part `own`, then those that nobody has begun.
  void run_parts(int own, std::uint64_t phase);
  void work(int worker);
  void wait_for_phase(std::uint64_t seen) const;

  int num_threads_ = 1;
  Function function_ = nullptr;
  void* context_ = nullptr;
  std::atomic<bool> stopping_{false};
  alignas(64) std::atomic<std::uint64_t> phase_{0};
  alignas(64) std::atomic<int> unfinished_{0};
  std::vector<WorkerPlace> places_;  // of each worker; empty: not pinned
  std::unique_ptr<Part[]> parts_;
  std::vector<std::thread> threads_;
};

// Processors this process may use: affinity mask, lowered by the cgroup's CPU quota.
int available_processors();

}  // namespace nibble
