// Bytes of a message: written in one order, read back with every bound checked.
//
// Owner: the caller. Values; not shared between threads.
// 1. Numbers are little-endian, whatever the machine is; texts and lists carry their length.
// 2. A Reader never reads beyond its bytes. After the first failure everything reads as zero or empty, and ok() stays false.
// 3. A count that is read is no larger than what the bytes left over can hold: nothing is allocated for a lie.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::bootstrap {

class Writer {
 public:
  template <std::integral Number>
  void number(Number value) {
    std::array<std::byte, sizeof(Number)> little;
    for (size_t i = 0; i < little.size(); ++i) little[i] = static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i));
    raw(std::span<const std::byte>(little));
  }
  void raw(std::span<const std::byte> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  template <class T, size_t kSize>
  requires(sizeof(T) == 1) void raw(const std::array<T, kSize>& bytes) { raw(std::as_bytes(std::span(bytes))); }
  /// At most 65,535 bytes are kept.
  void text(std::string_view text) {
    text = text.substr(0, UINT16_MAX);
    number(static_cast<uint16_t>(text.size()));
    raw(std::as_bytes(std::span(text)));
  }
  void blob(std::span<const std::byte> bytes) {
    number(static_cast<uint32_t>(bytes.size()));
    raw(bytes);
  }

  void reserve(size_t bytes) { bytes_.reserve(bytes); }
  std::span<const std::byte> view() const { return bytes_; }
  std::vector<std::byte> take() && { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <std::integral Number>
  Number number() {
    const std::span<const std::byte> bytes = raw(sizeof(Number));
    uint64_t value = 0;
    for (size_t i = 0; i < bytes.size(); ++i) value |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
    return static_cast<Number>(value);
  }
  /// A view into the message; empty when that many are not there.
  std::span<const std::byte> raw(size_t bytes) {
    if (bytes > rest_.size()) {
      fail();
      return {};
    }
    const std::span<const std::byte> taken = rest_.first(bytes);
    rest_ = rest_.subspan(bytes);
    return taken;
  }
  template <class T, size_t kSize>
  requires(sizeof(T) == 1) void raw(std::array<T, kSize>& to) {
    const std::span<const std::byte> bytes = raw(kSize);
    if (!bytes.empty()) std::memcpy(to.data(), bytes.data(), kSize);
  }
  std::string text(size_t longest) {
    const size_t size = number<uint16_t>();
    if (size > longest) fail();
    const std::span<const std::byte> bytes = ok_ ? raw(size) : std::span<const std::byte>();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::span<const std::byte> blob() { return raw(number<uint32_t>()); }
  /// How many elements follow, each of at least `bytesEach` bytes; 0 and a failure when they cannot.
  size_t count(size_t bytesEach, size_t most = SIZE_MAX) {
    const size_t value = number<uint32_t>();
    if (value > most || value > rest_.size() / bytesEach) fail();
    return ok_ ? value : 0;
  }

  void fail() {
    ok_ = false;
    rest_ = {};
  }
  bool ok() const { return ok_; }
  /// Everything was read, and rightly so.
  bool atEnd() const { return ok_ && rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
  bool ok_ = true;
};

}  // namespace tutti::bootstrap
