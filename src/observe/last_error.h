// The text of the latest warning of the process, for ncclGetLastError.
//
// Owner: one object inside log.cc. set() and read() may be called by any thread at once.
// 1. A text is cut to 1,023 bytes and never torn: writers touch only their own copy, under a lock; a reader gets a copy that is
//    not written again until kSlots further, different texts have been read.
// 2. The pointer stays valid for the life of the process. Initially "". Never cleared.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string_view>

namespace tutti::observe {

class LastError {
 public:
  static constexpr size_t kBytes = 1024;  ///< Of a text, its terminating zero included.
  static constexpr size_t kSlots = 256;

  constexpr LastError() = default;
  LastError(const LastError&) = delete;
  LastError& operator=(const LastError&) = delete;

  void set(std::string_view text);
  const char* read();

 private:
  using Text = std::array<char, kBytes>;

  std::mutex mutex_;
  Text current_{};               ///< Under mutex_.
  uint64_t written_ = 0;         ///< Texts ever set; under mutex_.
  uint64_t published_ = 0;       ///< `written_` when the newest slot was filled; under mutex_.
  uint64_t slotsUsed_ = 0;       ///< Slots ever filled; under mutex_.
  std::array<Text*, kSlots> slots_{};  ///< Allocated at first use and never freed: callers keep the pointers.
};

}  // namespace tutti::observe
