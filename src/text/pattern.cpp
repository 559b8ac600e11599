#include "text/pattern.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace nibble::text {

namespace {

bool is_alnum(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

// Unicode's White_Space. PCRE2's own `\s` also has U+180E.
constexpr std::string_view kSpaces = "\\p{Z}\\x{9}-\\x{D}\\x{85}";

// Characters that got their category after Unicode 14, which is what PCRE2 10.42 knows. With a
// later PCRE2 they are named twice, which changes nothing.
struct Addition {
  std::string_view category;
  unsigned first, last;
};
constexpr Addition kAdditions[] = {
#include "text/unicode_additions.inc"
};

// The members of a class that are in `category` ("L" or "Lu").
std::string members_of(std::string_view category) {
  std::string members = fmt::format("\\p{{{}}}", category);
  for (const Addition& addition : kAdditions) {
    if (addition.category.starts_with(category)) {
      members += fmt::format("\\x{{{:X}}}-\\x{{{:X}}}", addition.first, addition.last);
    }
  }
  return members;
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  Result<std::string> run() {
    while (at_ < in_.size()) {
      NIBBLE_RETURN_IF_ERROR(in_class_ ? class_item() : item());
    }
    return in_class_ ? Result<std::string>(refuse(1, "a class without ]")) : std::move(out_);
  }

 private:
  std::string_view rest() const { return in_.substr(at_); }

  Status refuse(std::size_t length, std::string_view what = "") const {
    const std::string_view found = what.empty() ? rest().substr(0, length) : what;
    return error(Code::kUnsupported, "{} at byte {} is not supported", found, at_);
  }

  Status copy(std::size_t length) {
    out_.append(rest().substr(0, length));
    at_ += length;
    return {};
  }

  Status item() {
    switch (in_[at_]) {
      case '\\': return escape();
      case '[': return open_class();
      case '(': return group();
      case '{': return repeat();
      case '.':
      case '^':
      case '$': return refuse(1);
      default: return copy(1);
    }
  }

  Status open_class() {
    in_class_ = true;
    NIBBLE_RETURN_IF_ERROR(copy(rest().starts_with("[^") ? 2 : 1));
    return rest().starts_with("]") ? refuse(1, "] as the first member of a class") : Status();
  }

  Status class_item() {
    if (rest().starts_with("\\")) {
      return escape();
    }
    if (rest().starts_with("[") || rest().starts_with("&&")) {
      return refuse(1, "a set operation inside a class");
    }
    in_class_ = !rest().starts_with("]");
    return copy(1);
  }

  Status group() {
    constexpr std::array<std::string_view, 7> kKinds = {"(?:", "(?i:", "(?=", "(?!",
                                                        "(?>", "(?<=", "(?<!"};
    if (!rest().starts_with("(?")) {
      return copy(1);
    }
    const auto* const kind = std::find_if(
        kKinds.begin(), kKinds.end(), [&](std::string_view k) { return rest().starts_with(k); });
    return kind == kKinds.end() ? refuse(3) : copy(kind->size());
  }

  // {n}, {n,} or {n,m}. A suffix after it means different things in the two dialects.
  Status repeat() {
    const std::size_t length = rest().find('}') + 1;
    const std::string_view body = rest().substr(1, length == 0 ? 0 : length - 2);
    const bool is_number = !body.empty() && body[0] != ',' &&
                           body.find_first_not_of("0123456789,") == std::string_view::npos &&
                           std::count(body.begin(), body.end(), ',') <= 1;
    if (!is_number) {
      return refuse(1, "{ that begins no {n,m}");
    }
    const std::string_view suffix = rest().substr(length);
    if (suffix.starts_with("?") || suffix.starts_with("+")) {
      return refuse(length + 1);
    }
    return copy(length);
  }

  // Replaces `length` bytes by a class of `members`, or by its complement.
  Status emit(std::size_t length, std::string_view members, bool is_negated) {
    if (in_class_) {
      if (is_negated) {
        return refuse(length, "a complement inside a class");
      }
      out_ += members;
    } else {
      out_ += fmt::format("[{}{}]", is_negated ? "^" : "", members);
    }
    at_ += length;
    return {};
  }

  Status escape() {
    const char kind = at_ + 1 < in_.size() ? in_[at_ + 1] : 'z';
    switch (kind) {
      case 's': return emit(2, kSpaces, false);
      // Inside a class there is a simple spelling: PCRE2's own and the character it wrongly lacks.
      case 'S': return emit(2, in_class_ ? "\\S\\x{180E}" : kSpaces, !in_class_);
      case 'd': return emit(2, members_of("Nd"), false);
      case 'D': return emit(2, members_of("Nd"), true);
      case 'p':
      case 'P': return property();
      case 'r':
      case 'n':
      case 't':
      case 'f': return copy(2);
      default:
        return is_alnum(kind) || static_cast<unsigned char>(kind) >= 0x80 ? refuse(2) : copy(2);
    }
  }

  // General categories to which later versions of Unicode only added. Script names select different
  // sets in the two dialects.
  Status property() {
    constexpr std::array<std::string_view, 32> kNames = {
        "Cc", "Cf", "Co", "L",  "Ll", "Lm", "Lo", "Lt", "Lu", "M",  "Me",
        "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Pe", "Pf", "Pi", "Po",
        "Ps", "S",  "Sc", "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs"};
    const std::size_t length = rest().find('}') + 1;
    if (length == 0 || in_[at_ + 2] != '{') {
      return refuse(3);
    }
    const std::string_view category = rest().substr(3, length - 4);
    const bool is_known = std::find(kNames.begin(), kNames.end(), category) != kNames.end();
    return is_known ? emit(length, members_of(category), in_[at_ + 1] == 'P') : refuse(length);
  }

  std::string_view in_;
  std::size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

}  // namespace

Result<std::string> translate_pattern(std::string_view pattern) {
  return Translator(pattern).run();
}

std::string literal_pattern(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x80 && !is_alnum(c)) {
      out += fmt::format("\\x{{{:X}}}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out;
}

std::string_view gpt2_pattern() {
  return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
}

}  // namespace nibble::text
