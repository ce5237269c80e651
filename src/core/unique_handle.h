// Move-only owner of one handle of the operating system or a driver: closes it exactly once.
//
// Owner: the holder. Not thread-safe, as any value.
// 1. Traits name the handle: `using Type`, `static Type invalid()`, `static void close(Type)`.
// 2. close() is never called with invalid(), and never twice with the same handle.
// 3. The same size as the handle itself.
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

namespace tutti {

template <class Traits>
concept HandleTraits = std::is_trivially_copyable_v<typename Traits::Type> && requires(Traits::Type handle) {
  { Traits::invalid() } noexcept -> std::same_as<typename Traits::Type>;
  { Traits::close(handle) } noexcept;
  { handle == handle } -> std::convertible_to<bool>;
};

template <HandleTraits Traits>
class [[nodiscard]] UniqueHandle {
 public:
  using Type = Traits::Type;

  UniqueHandle() noexcept = default;
  explicit UniqueHandle(Type handle) noexcept : handle_(handle) {}
  UniqueHandle(UniqueHandle&& other) noexcept : handle_(other.release()) {}
  UniqueHandle& operator=(UniqueHandle&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  UniqueHandle(const UniqueHandle&) = delete;
  UniqueHandle& operator=(const UniqueHandle&) = delete;
  ~UniqueHandle() { reset(); }

  Type get() const noexcept { return handle_; }
  bool valid() const noexcept { return !(handle_ == Traits::invalid()); }
  explicit operator bool() const noexcept { return valid(); }

  /// Gives the handle away: the caller closes it from now on.
  [[nodiscard]] Type release() noexcept { return std::exchange(handle_, Traits::invalid()); }

  /// Closes what is held and takes `handle` over. Resetting to the handle already held keeps it open.
  void reset(Type handle = Traits::invalid()) noexcept {
    Type old = std::exchange(handle_, handle);
    if (!(old == Traits::invalid()) && !(old == handle)) Traits::close(old);
  }

  /// Closes what is held and returns where a C function may write a new handle: `open(&device, handle.receive())`.
  Type* receive() noexcept {
    reset();
    return &handle_;
  }

 private:
  Type handle_ = Traits::invalid();
};

}  // namespace tutti
