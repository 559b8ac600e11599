#include "support/step_witness.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>

namespace nibble::testing_support {
namespace {

std::atomic<std::int64_t> allocations{0};
std::atomic<std::int64_t> locks{0};

#if defined(__x86_64__)

// linux/prctl.h of Debian 12 has these; named here so that older headers will do.
constexpr int kSetSyscallUserDispatch = 59;
constexpr char kAllow = 0;
constexpr char kBlock = 1;

thread_local volatile char selector = kAllow;
thread_local volatile std::int64_t first_call = kNoSystemCall;

// Carries the call out, since the kernel did not. From here on the thread's calls go through.
void on_system_call(int /*signal*/, siginfo_t* info, void* context) {
  selector = kAllow;
  first_call = info->si_syscall;
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const long result =
      ::syscall(info->si_syscall, registers[REG_RDI], registers[REG_RSI], registers[REG_RDX],
                registers[REG_R10], registers[REG_R8], registers[REG_R9]);
  registers[REG_RAX] = result == -1 ? -errno : result;
}

bool set_dispatch(bool is_on) {
  return ::prctl(kSetSyscallUserDispatch, is_on ? 1 : 0, 0, 0, is_on ? &selector : nullptr) == 0;
}

#endif

}  // namespace

StepCounts step_counts() { return {allocations.load(), locks.load()}; }

#if defined(__x86_64__)

bool can_watch_system_calls() {
  static const bool kCan = [] {
    struct sigaction action = {};
    action.sa_sigaction = &on_system_call;
    action.sa_flags = SA_SIGINFO;
    return ::sigaction(SIGSYS, &action, nullptr) == 0 && set_dispatch(true) && set_dispatch(false);
  }();
  return kCan;
}

void arm_thread() {
  set_dispatch(true);
  first_call = kNoSystemCall;
  selector = kBlock;
}

std::int64_t disarm_thread() {
  selector = kAllow;
  set_dispatch(false);
  return first_call;
}

#else

bool can_watch_system_calls() { return false; }
void arm_thread() {}
std::int64_t disarm_thread() { return kNoSystemCall; }

#endif

}  // namespace nibble::testing_support

// glibc's own names for what is replaced here. operator new calls malloc or aligned_alloc.
extern "C" {
// NOLINTBEGIN: the names are not ours.
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t bytes) {
  ++nibble::testing_support::allocations;
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  ++nibble::testing_support::allocations;
  return __libc_calloc(count, bytes);
}
void* realloc(void* pointer, std::size_t bytes) {
  ++nibble::testing_support::allocations;
  return __libc_realloc(pointer, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  ++nibble::testing_support::allocations;
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** out, std::size_t alignment, std::size_t bytes) {
  ++nibble::testing_support::allocations;
  *out = __libc_memalign(alignment, bytes);
  return *out == nullptr ? ENOMEM : 0;
}

int pthread_mutex_lock(pthread_mutex_t* mutex) {
  using Lock = int (*)(pthread_mutex_t*);
  static Lock next = reinterpret_cast<Lock>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  ++nibble::testing_support::locks;
  return next(mutex);
}
// NOLINTEND
}
