// What the two halves of driver_probe share: how it reports, and the process beside it that owns memory.
//
// Owner: main(). One thread; the other process is made before the driver is touched, because a driver does not survive a fork.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "core/unique_fd.h"
#include "driver/cuda/driver.h"
#include "memory/device_memory.h"

namespace tutti::probe {

struct Options {
  int32_t fake = 0;    ///< devices of a fake driver; 0: the real one
  bool plain = false;  ///< as if there were no virtual memory
};

/// Prints a line for each check and counts what failed.
class Report {
 public:
  void pass(const std::string& what, const std::string& detail = "") { print("ok", what, detail); }
  void skip(const std::string& what, const std::string& why) { print("skipped", what, why); }
  void note(const std::string& what, const std::string& detail) { print("note", what, detail); }
  void fail(const std::string& what, const std::string& why) {
    ++failures_;
    print("FAILED", what, why);
  }
  void check(const std::string& what, const Status& status, const std::string& detail = "") {
    status.ok() ? pass(what, detail) : fail(what, status.text());
  }
  int failures() const { return failures_; }

 private:
  static void print(const char* outcome, const std::string& what, const std::string& detail) {
    std::printf("%-8s %s%s%s\n", outcome, what.c_str(), detail.empty() ? "" : ": ", detail.c_str());
    std::fflush(stdout);
  }
  int failures_ = 0;
};

/// A driver that is initialised, and its devices.
struct Machine {
  std::unique_ptr<driver::cuda::Driver> driver;
  std::vector<std::unique_ptr<memory::Gpu>> gpus;
  static Result<Machine> open(const Options& options);
};

/// What byte `at` of the memory that `seed` names holds.
inline uint8_t patternAt(uint64_t at, uint32_t seed) { return static_cast<uint8_t>((at * 131 + at / 4096 * 7 + seed * 31 + 5) & 0xff); }
std::vector<uint8_t> makePattern(uint64_t bytes, uint32_t seed);
/// Copies between host and device memory, or two devices, by `gpu`, and waits.
Status copyNow(const memory::Gpu& gpu, driver::cuda::DevicePtr to, driver::cuda::DevicePtr from, uint64_t bytes);
Status writeNow(const memory::Gpu& gpu, driver::cuda::DevicePtr to, const std::vector<uint8_t>& data);
/// Whether [from, from + bytes) holds the pattern; the text names the first byte that does not.
Status checkPattern(const memory::Gpu& gpu, driver::cuda::DevicePtr from, uint64_t bytes, uint32_t seed);

inline constexpr uint64_t kShareBytes = uint64_t{4} << 20;
inline constexpr uint32_t kOwnerSeed = 1000;   ///< written by the other process
inline constexpr uint32_t kReaderSeed = 2000;  ///< written by this one

/// The process that makes memory and shares it.
struct Owner {
  pid_t pid = -1;
  UniqueFd socket;
};
/// Forks; the child serves requests until the socket closes.
Result<Owner> startOwner(const Options& options);
/// Asks for memory of `device`, shared by `kind`; opens it on `reader`; checks what the other wrote, writes, and has that checked there.
Status shareOnce(const Owner& owner, const memory::Gpu& reader, int32_t device, memory::ShareKind kind);

}  // namespace tutti::probe
