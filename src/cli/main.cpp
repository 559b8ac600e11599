#include <fcntl.h>
#include <langinfo.h>
#include <unistd.h>

#include <array>
#include <clocale>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <system_error>

#include "cli/app.h"
#include "cli/interrupt.h"

namespace nibble::cli {
namespace {

// A file opened later must not become standard output because that was closed: a closed stream
// gets a descriptor on which its use fails.
void occupy_standard_streams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) < 0) {
      (void)open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    }
  }
}

// Text is UTF-8 also where no locale is set, as in most containers. Numbers stay as in C.
void use_utf8() {
  const char* locale = std::setlocale(LC_CTYPE, "");
  if (locale == nullptr || std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) {
    std::setlocale(LC_CTYPE, "C.UTF-8");
  }
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 16> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d", &local)};
}

bool is_terminal(int descriptor) { return isatty(descriptor) != 0; }

int run_main(int argc, char** argv) {
  occupy_standard_streams();
  use_utf8();
  end_on_signals();
  std::error_code fault;
  const auto executable = std::filesystem::read_symlink("/proc/self/exe", fault);
  Host host{.backend = engine_backend(),
            .in = stdin,
            .in_is_terminal = is_terminal(STDIN_FILENO),
            .out = Output(stdout, is_terminal(STDOUT_FILENO)),
            .err = stderr,
            .err_is_terminal = is_terminal(STDERR_FILENO),
            .executable = executable.string(),
            .today = today(),
            .make_line_reader = &make_line_editor};
  return run_program({argv + (argc > 0 ? 1 : 0), argv + argc}, host);
}

}  // namespace
}  // namespace nibble::cli

int main(int argc, char** argv) { return nibble::cli::run_main(argc, argv); }
