#include "text/harmony_header.h"

#include <algorithm>
#include <array>
#include <vector>

namespace nibble::text {
namespace {

constexpr std::string_view kSpace = " \t\n\v\f\r";
constexpr std::string_view kRole = "assistant";
constexpr std::string_view kTo = "to=";
// At most this much of an unreadable header may be dropped when a body follows.
constexpr std::size_t kMaxJunkWords = 2;
constexpr std::size_t kMaxJunkBytes = 16;
constexpr std::size_t kMaxChannelBytes = 32;

struct ChannelName {
  std::string_view name;
  Channel channel;
};
constexpr std::array kChannels = {ChannelName{"analysis", Channel::kAnalysis},
                                  ChannelName{"commentary", Channel::kCommentary},
                                  ChannelName{"final", Channel::kFinal}};

enum class Mark : std::uint8_t { kNone, kChannel, kConstrain };

struct Word {
  std::size_t begin = 0;
  std::size_t end = 0;
  Mark mark = Mark::kNone;  // the marker before the word
  bool is_used = false;
};

bool is_space(char c) { return kSpace.find(c) != std::string_view::npos; }
bool is_mark(char c) { return c == kChannelMark || c == kConstrainMark; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_name_char(char c) {
  return is_letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
}

bool is_name(std::string_view word) {
  return !word.empty() && word.size() <= 64 && std::all_of(word.begin(), word.end(), is_name_char);
}

bool is_known_role(std::string_view word) {
  return word == kRole || word == "user" || word == "system" || word == "developer" ||
         word == "tool";
}

// Addressed to the conversation, not to a tool.
bool is_person(std::string_view recipient) {
  return recipient == "all" || is_known_role(recipient);
}

// Names that are recipients even without "to=".
bool is_evident_tool(std::string_view word) {
  return is_tool_name(word) && (word.starts_with("functions.") || word.starts_with("browser.") ||
                                word == "browser" || word == "python");
}

bool is_known_type(std::string_view word) {
  return word == "json" || word == "code" || word == "text";
}

std::optional<Channel> exact_channel(std::string_view word) {
  for (const ChannelName& known : kChannels) {
    if (word == known.name) {
      return known.channel;
    }
  }
  return std::nullopt;
}

// "..Final", "analysis7", "analysisanalysis": the known name that the letters begin with.
std::optional<Channel> near_channel(std::string_view word) {
  if (word.size() > kMaxChannelBytes) {
    return std::nullopt;
  }
  std::string letters(word.substr(
      static_cast<std::size_t>(std::find_if(word.begin(), word.end(), is_letter) - word.begin())));
  std::transform(letters.begin(), letters.end(), letters.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  for (const ChannelName& known : kChannels) {
    if (letters.starts_with(known.name)) {
      return known.channel;
    }
  }
  return std::nullopt;
}

// "t", "to=", "to=functions.": a name may still have followed.
bool is_open_recipient(std::string_view word) {
  return kTo.starts_with(word) || (word.starts_with(kTo) && std::all_of(word.begin() + kTo.size(),
                                                                        word.end(), is_name_char));
}

bool is_channel_prefix(std::string_view word) {
  return std::any_of(kChannels.begin(), kChannels.end(),
                     [&](const ChannelName& known) { return known.name.starts_with(word); });
}

class HeaderReader {
 public:
  HeaderReader(std::string_view text, bool has_role, HeaderEnd end)
      : text_(text), has_role_(has_role), end_(end) {
    split();
  }

  HarmonyHeader read() {
    read_role();
    read_channels();
    if (end_ != HeaderEnd::kStop) {
      read_types();
      read_recipients();
      if (end_ == HeaderEnd::kMessage || is_evident()) {
        read_bare_words();
      }
    }
    if (end_ == HeaderEnd::kCut) {
      drop_cut_word();
    }
    take_leftover();
    return std::move(header_);
  }

 private:
  std::string_view of(const Word& word) const {
    return text_.substr(word.begin, word.end - word.begin);
  }

  // A marker belongs to the next word, also over white space; the last of several markers counts.
  void split() {
    Mark mark = Mark::kNone;
    for (std::size_t i = 0; i < text_.size();) {
      if (is_mark(text_[i])) {
        header_.repairs += mark != Mark::kNone ? 1 : 0;
        mark = text_[i] == kChannelMark ? Mark::kChannel : Mark::kConstrain;
        has_mark_ = true;
        ++i;
      } else if (is_space(text_[i])) {
        ++i;
      } else {
        std::size_t end = i;
        while (end < text_.size() && !is_space(text_[end]) && !is_mark(text_[end])) {
          ++end;
        }
        add_word({i, end, mark});
        mark = Mark::kNone;
        i = end;
      }
    }
    header_.repairs += mark != Mark::kNone ? 1 : 0;
  }

  // "<channel>commentaryto=f" is a channel and a recipient.
  void add_word(Word word) {
    const std::size_t to = of(word).find(kTo);
    if (word.mark == Mark::kChannel && to == 0) {
      word.mark = Mark::kNone;
      ++header_.repairs;
    } else if (word.mark == Mark::kChannel && to != std::string_view::npos &&
               near_channel(of(word).substr(0, to))) {
      words_.push_back({word.begin, word.begin + to, Mark::kChannel});
      word = {word.begin + to, word.end};
      ++header_.repairs;
    }
    words_.push_back(word);
  }

  void use(Word& word, int repairs) {
    word.is_used = true;
    header_.repairs += repairs;
  }

  void read_role() {
    if (words_.empty() || words_.front().mark != Mark::kNone) {
      header_.repairs += has_role_ ? 1 : 0;
      return;
    }
    Word& first = words_.front();
    const std::string_view word = of(first);
    if (word == kRole) {
      is_role_used_ = true;
      use(first, has_role_ ? 0 : 1);
    } else if (has_role_ && is_known_role(word)) {
      is_role_used_ = true;
      use(first, 1);
    } else if (has_role_ && word.starts_with(kRole) && end_ == HeaderEnd::kMessage &&
               exact_channel(word.substr(kRole.size()))) {
      header_.channel = exact_channel(word.substr(kRole.size()));
      use(first, 1);
    } else if (has_role_ && end_ == HeaderEnd::kMessage && is_name(word)) {
      unknown_role_ = &first;  // counts as text again if a sentence follows
      use(first, 1);
    }
  }

  void read_channels() {
    for (Word& word : words_) {
      if (word.mark != Mark::kChannel) {
        continue;
      }
      const std::optional<Channel> exact = exact_channel(of(word));
      const std::optional<Channel> channel = exact ? exact : near_channel(of(word));
      if (!channel) {
        ++header_.repairs;
        continue;
      }
      use(word, exact && !header_.channel ? 0 : 1);
      header_.channel = header_.channel ? header_.channel : channel;
    }
  }

  void read_types() {
    for (Word& word : words_) {
      if (word.mark == Mark::kConstrain && !word.is_used && header_.content_type.empty()) {
        header_.content_type = of(word);
        use(word, 0);
      }
    }
  }

  void read_recipients() {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      std::string_view name = of(words_[i]);
      if (words_[i].is_used || !name.starts_with(kTo)) {
        continue;
      }
      has_to_ = true;
      while (name.starts_with(kTo)) {
        name.remove_prefix(kTo.size());
      }
      const bool is_split = name.empty() && i + 1 < words_.size() &&
                            words_[i + 1].mark == Mark::kNone && is_evident_tool(of(words_[i + 1]));
      name = is_split ? of(words_[i + 1]) : name;
      if (!is_tool_name(name)) {
        is_invalid_to_ |= !name.empty();
        ++header_.repairs;
        continue;
      }
      set_recipient(name, words_[i]);
      if (is_split) {
        use(words_[i + 1], 1);
      }
    }
  }

  // The first recipient counts.
  void set_recipient(std::string_view name, Word& word) {
    const bool is_first = header_.recipient.empty() && !is_to_person_;
    use(word, is_first ? 0 : 1);
    if (is_first && is_person(name)) {
      is_to_person_ = true;
    } else if (is_first) {
      header_.recipient = name;
    }
  }

  // Whether the words are surely a header and not an unmarked reply.
  bool is_evident() const { return has_mark_ || has_to_ || is_role_used_; }

  // Recipient without "to=", channel without marker, content type without marker.
  void read_bare_words() {
    for (Word& word : words_) {
      if (word.is_used || word.mark != Mark::kNone) {
        continue;
      }
      if (header_.recipient.empty() && !is_to_person_ && is_evident_tool(of(word))) {
        header_.recipient = of(word);
        use(word, 1);
      } else if (!header_.channel && exact_channel(of(word))) {
        header_.channel = exact_channel(of(word));
        use(word, 1);
      }
    }
    const std::size_t left = num_unused();
    for (Word& word : words_) {
      if (word.is_used || word.mark != Mark::kNone || !header_.content_type.empty()) {
        continue;
      }
      const bool is_lone = left == 1 && !header_.recipient.empty() && is_name(of(word));
      if (is_lone || (left <= kMaxJunkWords && is_known_type(of(word)))) {
        header_.content_type = of(word);
        use(word, 0);
      }
    }
  }

  // The last word may be a role, channel or "to=" that was still being written.
  void drop_cut_word() {
    if (words_.empty() || words_.back().is_used || num_unused() != 1) {
      return;
    }
    Word& last = words_.back();
    const std::string_view word = of(last);
    const bool is_role = has_role_ && words_.size() == 1 && kRole.starts_with(word);
    const bool is_channel = last.mark == Mark::kChannel && is_channel_prefix(word);
    const bool is_to = last.mark == Mark::kNone && is_open_recipient(word);
    if (is_role || is_channel || is_to) {
      use(last, 0);
    }
  }

  std::size_t num_unused() const {
    return static_cast<std::size_t>(
        std::count_if(words_.begin(), words_.end(), [](const Word& w) { return !w.is_used; }));
  }

  bool is_junk() const {
    return end_ == HeaderEnd::kMessage && !is_invalid_to_ &&
           num_unused() + (unknown_role_ != nullptr ? 1 : 0) <= kMaxJunkWords &&
           std::all_of(words_.begin(), words_.end(),
                       [](const Word& w) { return w.is_used || w.end - w.begin <= kMaxJunkBytes; });
  }

  void take_leftover() {
    if (num_unused() == 0) {
      return;
    }
    ++header_.repairs;
    if (is_junk()) {
      return;
    }
    if (unknown_role_ != nullptr) {
      unknown_role_->is_used = false;
    }
    if (!has_mark_ && num_unused() == words_.size()) {
      header_.leftover = text_;  // an unmarked reply keeps its white space
      return;
    }
    const Word* previous = nullptr;
    for (const Word& word : words_) {
      if (word.is_used) {
        previous = nullptr;
        continue;
      }
      append_leftover(word, previous);
      previous = &word;
    }
  }

  // Neighbours keep the white space between them; elsewhere one space stands for what was cut out.
  void append_leftover(const Word& word, const Word* previous) {
    const std::size_t end = previous == nullptr ? word.begin : previous->end;
    const std::string_view gap = text_.substr(end, word.begin - end);
    if (previous != nullptr && std::none_of(gap.begin(), gap.end(), is_mark)) {
      header_.leftover += gap;
    } else if (!header_.leftover.empty()) {
      header_.leftover += ' ';
    }
    header_.leftover += of(word);
  }

  std::string_view text_;
  bool has_role_;
  HeaderEnd end_;
  std::vector<Word> words_;
  HarmonyHeader header_;
  Word* unknown_role_ = nullptr;
  bool has_mark_ = false;
  bool has_to_ = false;
  bool is_role_used_ = false;
  bool is_invalid_to_ = false;
  bool is_to_person_ = false;
};

}  // namespace

bool is_tool_name(std::string_view name) {
  constexpr std::string_view kFunctions = "functions.";
  return is_name(name.starts_with(kFunctions) ? name.substr(kFunctions.size()) : name);
}

HarmonyHeader read_header(std::string_view text, bool has_role, HeaderEnd end) {
  return HeaderReader(text, has_role, end).read();
}

}  // namespace nibble::text
