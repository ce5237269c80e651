// Which ranks of a communicator reach each other's GPU memory, seen from one of them: found out while it connects, alike by both ends of
// every pair.
//
// Owner: the endpoint. Used by the endpoint's thread; nothing here blocks, but for the moment in which kernels end that have reported.
// 1. Each rank says of each pair what speaks against it (settings, distance, the driver), or that it has to be tried. A pair is direct only
//    if nothing does on either side.
// 2. Pairs that either side has not tried in this process yet are tried by kernels of both (exec/cuda/probe.h), which begin when all ranks
//    have come this far. One that fails is not used, and the rank with the lower number says so once. One whose other side did not come in
//    time is taken as it is: nothing is known against it.
// 3. The peer's control memory stays mapped until the survey goes. The kernel has ended before: who has all reports waits for its end, and
//    the destructor where they have not come, no longer than the kernel's own limits.
#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "transport/device/surroundings.h"

namespace tutti::transport::device {

class Survey {
 public:
  /// `kernelPage`: the page's first byte for this rank's GPU; `control`: this rank's control memory.
  Survey(const Surroundings& around, const Page& page, const ProcessKey& self, Rank rank, driver::cuda::DevicePtr kernelPage,
         driver::cuda::DevicePtr control, const ControlLayout& layout);
  Survey(const Survey&) = delete;
  Survey& operator=(const Survey&) = delete;
  ~Survey();

  /// All ranks have written their cards, and the GPU's context is current. Failed: status() says why.
  Poll poll();
  /// A report has not come, and the driver has said just now that its kernel runs: poll() would only ask again. Calls no driver.
  bool isStill() const;
  /// Once poll() is Ready.
  bool isDirect(int32_t peer) const { return paths_[static_cast<size_t>(peer)].isDirect; }
  const Status& status() const { return status_; }
  /// Whose news poll() lacks; -1: nobody's.
  Rank missing() const { return missing_; }

 private:
  struct Path {
    Opinion opinion = Opinion::Direct;
    bool isDirect = true;
    bool isProbed = false;
    std::string why;  ///< what speaks against it
    Reached control;
  };
  Poll form();
  Poll hear();
  Poll launch();
  Poll awaitReports();
  Poll compare();
  Poll conclude();
  Status formOne(int32_t peer);
  Result<std::string> objection(int32_t peer, std::optional<driver::cuda::Device> seenAs) const;
  Poll fail(Status status);
  Poll awaitRank(int32_t rank);
  void settle(int32_t peer, exec::cuda::ProbeEnd theirs);
  void warn(int32_t peer) const;
  PairBook::Gpu gpuOf(int32_t rank) const;
  std::string describe(int32_t rank) const;

  const Surroundings around_;
  const Page page_;
  const ProcessKey self_;
  const Rank rank_;
  const driver::cuda::DevicePtr kernelPage_;
  const driver::cuda::DevicePtr control_;
  const ControlLayout layout_;
  size_t step_ = 0;
  std::vector<Path> paths_;  // by rank
  bool isProbing_ = false;   // a kernel may be under way
  std::optional<std::chrono::steady_clock::time_point> askedAt_;  // whether it has ended; of rank missing_ no report had come
  Rank missing_{-1};
  Status status_;
};

}  // namespace tutti::transport::device
