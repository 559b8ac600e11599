#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

namespace nibble {
namespace {

// About 50 us: longer than any gap between two phases of a step, short enough to cost nothing when
// idle.
constexpr int kSpins = 20000;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
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

ThreadPool::ThreadPool(int num_threads)
    : num_threads_(num_threads > 0 ? num_threads : available_processors()) {
  const std::vector<int> cpus = allowed_processors();
  const bool pin = num_threads_ > 1 && static_cast<int>(cpus.size()) >= num_threads_;
  for (int worker = 1; worker < num_threads_; ++worker) {
    threads_.emplace_back([this, worker, pin, cpu = pin ? cpus[worker] : 0] {
      if (pin) {
        pin_current_thread(cpu);
      }
      work(worker);
    });
  }
}

ThreadPool::~ThreadPool() {
  stopping_ = true;
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
  running_.store(num_threads_ - 1, std::memory_order_relaxed);
  phase_.fetch_add(1, std::memory_order_release);
  phase_.notify_all();
  function(context, 0);
  for (int spins = 0; running_.load(std::memory_order_acquire) != 0; ++spins) {
    if (spins < kSpins) {
      relax();
    } else {
      std::this_thread::yield();
    }
  }
}

void ThreadPool::wait_for_phase(std::uint64_t seen) const {
  for (int spins = 0; spins < kSpins; ++spins) {
    if (phase_.load(std::memory_order_acquire) != seen) {
      return;
    }
    relax();
  }
  phase_.wait(seen, std::memory_order_acquire);
}

void ThreadPool::work(int worker) {
  for (std::uint64_t seen = 0;;) {
    wait_for_phase(seen);
    const std::uint64_t current = phase_.load(std::memory_order_acquire);
    if (current == seen) {
      continue;
    }
    seen = current;
    if (stopping_) {
      return;
    }
    function_(context_, worker);
    running_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace nibble
