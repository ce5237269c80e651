// What the library's memory on a device is used for, and how much of it there may be.
//
// Owner: one for each device of the process (comm/process.h). Any thread; one lock, held for a few additions.
// 1. What is limited never exceeds the budget, not even for a moment: memory is charged before it is asked of the driver.
// 2. What users allocate (ncclMemAlloc) is counted and shown, but is theirs: the budget does not limit it.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "core/ids.h"
#include "core/status.h"

namespace tutti::memory {

enum class Purpose : uint8_t { Pipes, Windows, Boards, Kernels, Idle, User };
inline constexpr size_t kNumPurposes = 6;
/// "pipes", …; Idle: kept for whoever asks next.
std::string_view name(Purpose purpose);

struct Usage {
  std::array<Bytes, kNumPurposes> bytes{};  ///< by Purpose
  Bytes budget;                             ///< 0: none
  Bytes of(Purpose purpose) const { return bytes[static_cast<size_t>(purpose)]; }
  /// What the budget limits: everything but User.
  Bytes limited() const;
  /// "pipes 4194304, idle 1024 bytes"; "nothing".
  std::string text() const;
};

class Budget {
 public:
  /// `limit` in bytes; 0: none.
  Budget(int32_t device, Bytes limit) : device_(device) { usage_.budget = limit; }
  /// Counts `bytes` for `purpose`. UnhandledCudaError, and nothing counted, when the budget would be exceeded; `wanted`: what for.
  Status charge(Purpose purpose, Bytes bytes, Purpose wanted);
  Status charge(Purpose purpose, Bytes bytes) { return charge(purpose, bytes, purpose); }
  void credit(Purpose purpose, Bytes bytes);
  /// What was used for one purpose is used for another: never refused.
  void move(Purpose from, Purpose to, Bytes bytes);
  Usage usage() const;

 private:
  const int32_t device_;
  mutable std::mutex mutex_;  ///< protects what follows
  Usage usage_;
};

}  // namespace tutti::memory
