#include "cli/interrupt.h"

#include <termios.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>

namespace nibble::cli {
namespace {

// Handlers may only touch these, and only call async-signal-safe functions.
std::atomic<bool> interrupted{false};
std::atomic<bool> is_guarded{false};
termios first_settings;
bool has_settings = false;

void say(const char* text) { (void)!write(STDERR_FILENO, text, std::strlen(text)); }

[[noreturn]] void end(int signal) {
  if (has_settings) {
    tcsetattr(STDIN_FILENO, TCSANOW, &first_settings);
  }
  if (isatty(STDERR_FILENO) != 0) {
    say("\n");  // after the ^C that the terminal echoes
  }
  say(signal == SIGINT ? "nibble: interrupted\n" : "nibble: terminated\n");
  _exit(128 + signal);
}

void on_signal(int signal) {
  if (signal == SIGINT && is_guarded) {
    interrupted = true;
    return;
  }
  end(signal);
}

void install(int signal) {
  struct sigaction old = {};
  sigaction(signal, nullptr, &old);
  if (old.sa_handler == SIG_IGN) {
    return;
  }
  struct sigaction action = {};
  action.sa_handler = on_signal;  // without SA_RESTART: a waiting read must notice
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

}  // namespace

void end_on_signals() {
  has_settings = tcgetattr(STDIN_FILENO, &first_settings) == 0;
  install(SIGINT);
  install(SIGTERM);
  std::signal(SIGPIPE, SIG_IGN);
}

InterruptGuard::InterruptGuard() { is_guarded = true; }
InterruptGuard::~InterruptGuard() { is_guarded = false; }

bool is_interrupted() { return interrupted; }
void clear_interrupt() { interrupted = false; }

}  // namespace nibble::cli
