#include "cli/line_editor.h"

#include <histedit.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cwchar>

#include "cli/interrupt.h"

namespace nibble::cli {
namespace {

constexpr int kHistoryLines = 1000;

// One byte from standard input: 1, 0 at the end, -1 on an error or an interrupt. SIGINT is let in
// only while waiting, so that one which comes just before is not missed.
int read_byte(char& byte) {
  sigset_t interrupt;
  sigset_t before;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  pthread_sigmask(SIG_BLOCK, &interrupt, &before);
  pollfd wait{STDIN_FILENO, POLLIN, 0};
  int ready = -1;
  while (!is_interrupted() && ready < 0) {
    ready = ppoll(&wait, 1, nullptr, &before);
    if (ready < 0 && errno != EINTR) {
      break;
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return is_interrupted() || ready < 0 ? -1 : static_cast<int>(read(STDIN_FILENO, &byte, 1));
}

int read_character(EditLine* /*edit*/, wchar_t* character) {
  std::mbstate_t state{};
  while (true) {
    char byte = 0;
    if (const int count = read_byte(byte); count != 1) {
      return count;
    }
    switch (std::mbrtowc(character, &byte, 1, &state)) {
      case static_cast<std::size_t>(-2): continue;           // more bytes to come
      case static_cast<std::size_t>(-1): state = {}; break;  // not a character: drop it
      default: return 1;
    }
  }
}

class LineEditor : public LineReader {
 public:
  explicit LineEditor(std::string history_file) : history_file_(std::move(history_file)) {
    edit_ = el_init("nibble", stdin, stdout, stderr);
    history_ = history_init();
    HistEvent event;
    history(history_, &event, H_SETSIZE, kHistoryLines);
    history(history_, &event, H_SETUNIQUE, 1);
    if (!history_file_.empty()) {
      history(history_, &event, H_LOAD, history_file_.c_str());
    }
    el_set(edit_, EL_CLIENTDATA, this);
    el_set(edit_, EL_PROMPT, &LineEditor::prompt_of);
    el_set(edit_, EL_EDITOR, "emacs");
    el_set(edit_, EL_SIGNAL, 0);
    el_set(edit_, EL_HIST, history, history_);
    el_set(edit_, EL_GETCFN, &read_character);
    el_set(edit_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  }

  ~LineEditor() override {
    HistEvent event;
    if (!history_file_.empty()) {
      history(history_, &event, H_SAVE, history_file_.c_str());
    }
    history_end(history_);
    el_end(edit_);
  }

  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  Event read(const std::string& prompt, std::string& line) override {
    const InterruptGuard guard;
    clear_interrupt();
    prompt_ = prompt;
    int count = 0;
    const char* text = el_gets(edit_, &count);
    if (is_interrupted()) {
      clear_interrupt();
      el_reset(edit_);
      std::fputs("\n", stdout);
      return Event::kInterrupted;
    }
    if (text == nullptr || count <= 0) {
      std::fputs("\n", stdout);
      return Event::kEnd;
    }
    line.assign(text, static_cast<std::size_t>(count));
    while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) {
      line.pop_back();
    }
    if (!line.empty()) {
      HistEvent event;
      history(history_, &event, H_ENTER, line.c_str());
    }
    return Event::kLine;
  }

 private:
  static char* prompt_of(EditLine* edit) {
    void* self = nullptr;
    el_get(edit, EL_CLIENTDATA, &self);
    return static_cast<LineEditor*>(self)->prompt_.data();
  }

  std::string history_file_;
  std::string prompt_;
  EditLine* edit_ = nullptr;
  History* history_ = nullptr;
};

}  // namespace

std::unique_ptr<LineReader> make_line_editor(const std::string& history_file) {
  return std::make_unique<LineEditor>(history_file);
}

}  // namespace nibble::cli
