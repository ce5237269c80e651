// Operating errors as values: a code, plain words, and the chain of places that it passed through.
//
// Owner: whoever holds the value. Thread-safe as any value: not shared without a lock.
// 1. An OK Status holds nothing and costs one null pointer; only an error allocates.
// 2. Text is written once, where the cause is first known; callers above add context with at() and never log again.
// 3. "Pending" is not an error: it has its own type, Poll.
#pragma once

#include <tl/expected.hpp>

#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <string_view>

#include "core/format.h"

namespace tutti {

/// What went wrong, in the classes that callers can act on. Values equal ncclResult_t (api/ asserts it).
enum class Code : int32_t {
  Ok = 0,
  UnhandledCudaError = 1,
  SystemError = 2,
  InternalError = 3,
  InvalidArgument = 4,
  InvalidUsage = 5,
  RemoteError = 6,
  InProgress = 7,
};

std::string_view codeName(Code code);

/// Whether what is under way has failed for what this process lacks, or for a defect: nobody else can know of it. Some calls that refuse
/// their arguments have these codes as well, as NCCL does.
constexpr bool isLack(Code code) { return code == Code::UnhandledCudaError || code == Code::SystemError || code == Code::InternalError; }

/// Outcome of one try of something that may have to wait.
enum class Poll : uint8_t { Ready, Pending, Failed };

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string text);
  Status(const Status& other);
  Status& operator=(const Status& other);
  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;
  ~Status() = default;

  bool ok() const { return error_ == nullptr; }
  Code code() const { return error_ ? error_->code : Code::Ok; }

  /// The words, innermost cause first, then where it passed: "no such device: 9 [connect ring < init rank 3]". Empty when OK.
  std::string text() const;

  /// Adds where the error passed through; does nothing to an OK status. `return status.at("connect ring");`
  Status at(std::string_view where) &&;

 private:
  struct Error {
    Code code;
    std::string text;
    std::string path;
  };
  std::unique_ptr<Error> error_;
};

template <class T>
using Result = tl::expected<T, Status>;

/// `return fail(Code::InvalidArgument, "count {} is negative", n);`.
template <class... Args>
tl::unexpected<Status> fail(Code code, fmt::format_string<Args...> text, Args&&... args) {
  return tl::unexpected<Status>(Status(code, formatArgs(text, fmt::make_format_args(args...))));
}
template <class... Args>
Status error(Code code, fmt::format_string<Args...> text, Args&&... args) {
  return Status(code, formatArgs(text, fmt::make_format_args(args...)));
}

/// What `make` returns, a Result; SystemError where it finds no memory.
template <class Make>
auto orOutOfMemory(Make&& make) -> decltype(make()) {
  try {
    return make();
  } catch (const std::bad_alloc&) {
    return tl::unexpected(Status(Code::SystemError, "out of memory"));
  }
}

}  // namespace tutti

/// Leaves the function with the error when `expression`, a Status, is not OK.
#define TUTTI_TRY(expression)                                     \
  do {                                                            \
    if (::tutti::Status tuttiStatus_ = (expression); !tuttiStatus_.ok()) [[unlikely]] \
      return tuttiStatus_;                                        \
  } while (false)
