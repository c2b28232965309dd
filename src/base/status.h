// Expected failures as values: Code, Error, Status, Result<T>; and CHECK for broken invariants.
//
// A function that can fail for a reason outside our control returns Status or Result<T>. A message says what, where,
// found and expected. CHECK is for our own bugs only, never for anything a client, peer or file controls.
#pragma once

#include <fmt/core.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace deepinfer {

enum class Code {
  kInvalidArgument,    // the caller's value is wrong; the same call fails again
  kNotFound,           // a named thing is absent
  kDataLoss,           // bytes exist but are damaged or cut short
  kUnimplemented,      // valid, but this engine does not do it
  kResourceExhausted,  // memory, queue or pool is full
  kUnavailable,        // try again later
  kCancelled,          // a stop was asked for
  kDeadlineExceeded,   // a deadline passed
  kIo,                 // the system refused a read, write, bind, ...
  kInternal,           // a broken promise of ours, reported instead of aborting
};

std::string_view code_name(Code code);

class [[nodiscard]] Error {
 public:
  template <typename... Args>
  Error(Code code, fmt::format_string<Args...> format, Args&&... args)
      : code_(code), message_(fmt::format(format, std::forward<Args>(args)...)) {}

  Code code() const { return code_; }
  const std::string& message() const { return message_; }

  // The same error with "context: " in front of its message.
  Error in(std::string_view context) const { return Error(code_, "{}: {}", context, message_); }

 private:
  Code code_;
  std::string message_;
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)) {}

  bool ok() const { return !error_.has_value(); }
  const Error& error() const;  // CHECKs !ok()

 private:
  std::optional<Error> error_;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  const Error& error() const { return std::get<1>(state_); }
  Status status() const { return ok() ? Status() : Status(error()); }

  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Error> state_;
};

[[noreturn]] void check_failed(const char* file, int line, const char* condition);

}  // namespace deepinfer

#define CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::deepinfer::check_failed(__FILE__, __LINE__, #condition))
#ifdef NDEBUG
#define DCHECK(condition) static_cast<void>(0)
#else
#define DCHECK(condition) CHECK(condition)
#endif

#define DEEPINFER_CONCAT_(a, b) a##b
#define DEEPINFER_CONCAT(a, b) DEEPINFER_CONCAT_(a, b)

// RETURN_IF_ERROR(status_expression);
#define RETURN_IF_ERROR(expression)                                     \
  do {                                                                  \
    if (auto status_ = (expression); !status_.ok()) return status_.error(); \
  } while (false)

// ASSIGN_OR_RETURN(const auto x, result_expression);
#define ASSIGN_OR_RETURN(target, expression) \
  ASSIGN_OR_RETURN_(DEEPINFER_CONCAT(result_, __LINE__), target, expression)
#define ASSIGN_OR_RETURN_(result, target, expression) \
  auto result = (expression);                         \
  if (!result.ok()) return result.error();            \
  target = std::move(result).value()
