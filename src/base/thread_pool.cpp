#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <string>

namespace nibble {
namespace {

// Longer than any gap between two phases of a step. A worker that spins on holds up whoever else
// wants its processor, so it is measured in time: one pause takes 15 ns on some processors and 50
// on others.
constexpr std::chrono::microseconds kSpinTime{40};
constexpr int kPausesBetweenLooksAtTheClock = 32;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Spins until `is_done` says so; false after kSpinTime.
template <typename IsDone>
bool spin_until(IsDone is_done) {
  const auto end = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int pause = 0; pause < kPausesBetweenLooksAtTheClock; ++pause) {
      if (is_done()) {
        return true;
      }
      relax();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

// cgroup v2 writes "QUOTA PERIOD" or "max PERIOD"; v1 has two files. 0 when there is no limit.
int cgroup_limit() {
  std::ifstream v2("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0.0;
  if (v2 >> quota >> period) {
    return quota == "max" || period <= 0.0 ? 0
                                           : static_cast<int>(std::ceil(std::stod(quota) / period));
  }
  std::ifstream v1_quota("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  std::ifstream v1_period("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  double microseconds = 0.0;
  if (v1_quota >> microseconds && v1_period >> period && microseconds > 0.0 && period > 0.0) {
    return static_cast<int>(std::ceil(microseconds / period));
  }
  return 0;
}

std::vector<int> allowed_processors() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  std::vector<int> out;
  if (::sched_getaffinity(0, sizeof(mask), &mask) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &mask)) {
        out.push_back(cpu);
      }
    }
  }
  return out;
}

void pin_current_thread(int cpu) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  CPU_SET(cpu, &mask);
  // Failure leaves the thread unpinned: slower, not wrong.
  (void)::sched_setaffinity(0, sizeof(mask), &mask);
}

}  // namespace

int available_processors() {
  const int allowed = std::max<int>(1, static_cast<int>(allowed_processors().size()));
  const int limit = cgroup_limit();
  return limit > 0 ? std::min(allowed, limit) : allowed;
}

ThreadPool::ThreadPool(int num_threads, const std::vector<MemoryNode>& nodes)
    : num_threads_(num_threads > 0 ? num_threads : available_processors()),
      places_(place_workers(allowed_processors(), nodes, num_threads_)),
      parts_(std::make_unique<Part[]>(num_threads_)) {
  for (int worker = 1; worker < num_threads_; ++worker) {
    threads_.emplace_back([this, worker] {
      if (!places_.empty()) {
        pin_current_thread(places_[worker].processor);
      }
      work(worker);
    });
  }
}

std::vector<int> ThreadPool::processors() const {
  std::vector<int> out;
  for (const WorkerPlace& place : places_) {
    out.push_back(place.processor);
  }
  return out;
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_relaxed);
  phase_.fetch_add(1, std::memory_order_release);
  phase_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void ThreadPool::run_erased(Function function, void* context) {
  if (num_threads_ == 1) {
    function(context, 0);
    return;
  }
  function_ = function;
  context_ = context;
  unfinished_.store(num_threads_, std::memory_order_relaxed);
  const std::uint64_t phase = phase_.fetch_add(1, std::memory_order_release) + 1;
  phase_.notify_all();
  run_parts(0, phase);
  const auto is_done = [this] { return unfinished_.load(std::memory_order_acquire) == 0; };
  if (!spin_until(is_done)) {
    while (!is_done()) {
      std::this_thread::yield();
    }
  }
}

bool ThreadPool::claim(int part, std::uint64_t phase) {
  std::uint64_t last = parts_[part].last_phase.load(std::memory_order_relaxed);
  return last < phase &&
         parts_[part].last_phase.compare_exchange_strong(last, phase, std::memory_order_relaxed);
}

void ThreadPool::run_parts(int own, std::uint64_t phase) {
  for (int offset = 0; offset < num_threads_; ++offset) {
    const int part = (own + offset) % num_threads_;
    // A part that could be claimed keeps its phase open, so the function is still the phase's own.
    if (claim(part, phase)) {
      function_(context_, part);
      unfinished_.fetch_sub(1, std::memory_order_release);
    }
  }
}

void ThreadPool::wait_for_phase(std::uint64_t seen) const {
  const auto has_begun = [&] { return phase_.load(std::memory_order_acquire) != seen; };
  if (!spin_until(has_begun)) {
    phase_.wait(seen, std::memory_order_acquire);
  }
}

void ThreadPool::work(int worker) {
  for (std::uint64_t seen = 0;;) {
    wait_for_phase(seen);
    const std::uint64_t current = phase_.load(std::memory_order_acquire);
    if (current == seen) {
      continue;
    }
    seen = current;
    if (stopping_.load(std::memory_order_relaxed)) {
      return;
    }
    run_parts(worker, current);
  }
}

}  // namespace nibble
