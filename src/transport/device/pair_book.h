// What a process knows of its GPUs and of those that they were paired with: which path has been tried, and what came of it.
//
// Owner: the process (comm/devices.h). Any thread.
// 1. A pair that has been tried is not tried again, whatever communicator asks.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "driver/cuda/driver.h"

namespace tutti::transport::device {

/// What settings and the machine have to say of pairs of GPUs.
struct PairRules {
  bool p2pDisabled = false;  ///< NCCL_P2P_DISABLE
  bool shmDisabled = false;  ///< NCCL_SHM_DISABLE
  bool probes = true;        ///< TUTTI_P2P_PROBE
  std::chrono::milliseconds meeting{1000};  ///< for the other side's probe to begin
  std::chrono::milliseconds patience{200};  ///< for each of its flags
  std::pair<int32_t, int32_t> spoilt{-1, -1};  ///< TUTTI_P2P_PROBE: ranks whose probe is made to fail
  /// Whether two devices that this process sees are near enough to each other (NCCL_P2P_LEVEL); empty: whatever the distance. By any
  /// thread.
  std::function<Result<bool>(driver::cuda::Device, driver::cuda::Device)> isNear{};  // NOLINT(readability-redundant-member-init)
};

class PairBook {
 public:
  using Gpu = std::array<uint8_t, 16>;  ///< its UUID
  /// Whether the path between two GPUs works; nothing: it has not been tried.
  std::optional<bool> find(const Gpu& one, const Gpu& other) const;
  void note(const Gpu& one, const Gpu& other, bool works);
  /// As this process counts its devices; nothing for one that it does not see.
  Result<std::optional<driver::cuda::Device>> deviceOf(driver::cuda::Driver& driver, const Gpu& gpu);
  /// Other devices come.
  void clear();

 private:
  using Pair = std::pair<Gpu, Gpu>;
  static Pair ordered(const Gpu& one, const Gpu& other) { return one < other ? Pair(one, other) : Pair(other, one); }

  mutable std::mutex mutex_;  ///< protects what follows
  std::map<Pair, bool> works_;
  std::optional<std::vector<Gpu>> devices_;  // by number, once asked
};

}  // namespace tutti::transport::device
