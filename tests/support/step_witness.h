// Counts what the threads of this program do that a decode step must not: allocations and mutexes
// of all threads, and the first system call of each watched thread. Link step_witness.cpp into the
// test's program: it replaces malloc and its kin, operator new among them, and pthread_mutex_lock.
#pragma once

#include <array>
#include <cstdint>

namespace nibble::testing_support {

struct StepCounts {
  std::int64_t allocations = 0;
  std::int64_t locks = 0;
};

// Since the program began.
StepCounts step_counts();

// From arm_thread() to disarm_thread() the kernel reports the thread's system calls. The first is
// remembered and carried out, the rest go unseen. Linux 5.11 or later on x86-64.
inline constexpr std::int64_t kNoSystemCall = -1;
bool can_watch_system_calls();
void arm_thread();
// The number of the first system call since arm_thread(), or kNoSystemCall.
std::int64_t disarm_thread();

}  // namespace nibble::testing_support
