// Outcome of an operation that may fail for reasons outside the program's control.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace nibble {

/// The closed set of failures. docs/architecture.md maps each to an exit code and an HTTP status.
enum class Code : unsigned char {
  kOk,
  kInvalidArgument,  ///< the caller asked for something that makes no sense
  kUnsupported,      ///< valid, but this build or machine cannot do it
  kCorrupt,          ///< a file is not what it claims to be
  kNotFound,         ///< a file, tensor or name is missing
  kExhausted,        ///< does not fit in memory, on disk or in the cache
  kCancelled,        ///< stopped on request
  kDevice,           ///< the device failed
  kInternal,         ///< the machine or the model misbehaved while running (I/O error, NaN logits)
};

/// Lower-case English name of `code`, for logs.
std::string_view name(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

/// A value, or the reason why there is none. Member names follow `std::expected`.
/// Reading the value of a failed result stops the program: check first.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    if (status_.ok()) {
      std::abort();  // a failed result needs a reason
    }
  }
  // NOLINTBEGIN(google-explicit-constructor, bugprone-forwarding-reference-overload)
  template <typename U>
  requires(std::is_constructible_v<T, U> && !std::is_same_v<std::remove_cvref_t<U>, Result> &&
           !std::is_same_v<std::remove_cvref_t<U>, Status> &&
           !std::is_same_v<std::remove_cvref_t<U>, T>) Result(U&& value)
      : value_(std::forward<U>(value)) {}
  // NOLINTEND(google-explicit-constructor, bugprone-forwarding-reference-overload)

  bool has_value() const { return value_.has_value(); }
  explicit operator bool() const { return has_value(); }
  const Status& error() const { return status_; }

  T& value() & { return checked(); }
  const T& value() const& { return const_cast<Result*>(this)->checked(); }
  T&& value() && { return std::move(checked()); }
  T& operator*() & { return checked(); }
  const T& operator*() const& { return const_cast<Result*>(this)->checked(); }
  T&& operator*() && { return std::move(checked()); }
  T* operator->() { return &checked(); }
  const T* operator->() const { return &const_cast<Result*>(this)->checked(); }

 private:
  T& checked() {
    if (!value_.has_value()) {
      std::abort();
    }
    return *value_;
  }

  std::optional<T> value_;
  Status status_;
};

}  // namespace nibble
