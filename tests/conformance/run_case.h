// One case of the matrix on all ranks of a communicator, checked in every respect.
//
// Owner: the test; a CaseRunner serves one RankThreads. runCase() is called by every rank's thread with the same cases in the same
// order; it meets the other ranks twice.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "conformance/harness.h"
#include "conformance/matrix.h"
#include "conformance/reference.h"

namespace tutti::conformance {

class CaseRunner {
 public:
  explicit CaseRunner(RankThreads& threads) : threads_(threads), rounds_(static_cast<size_t>(threads.ranks())) {
    for (auto& inputs : inputs_) inputs.resize(rounds_.size());
  }

  /// Random pauses before calls, up to this many microseconds.
  void setJitterUs(int microseconds) { jitterUs_ = microseconds; }
  void runCase(const Case& c, int rank, ncclComm_t comm);

  /// Hash of all outputs of this rank so far would depend on the thread; so this is of rank 0's outputs.
  uint64_t hash() const { return hash_; }
  int failures() const { return failures_.load(); }

 private:
  struct Buffers {
    GuardedBuffer send;
    GuardedBuffer recv;
    void* sendPointer = nullptr;
    void* recvPointer = nullptr;
    std::byte* output = nullptr;
  };
  friend std::string runCaseAlone(const Case& c, int rank, ncclComm_t comm, bool fromMemAlloc, const std::function<void()>& settle);
  static void prepare(const Case& c, int rank, const Contents& input, Buffers& buffers);
  static std::string verify(const Case& c, int rank, const std::vector<Contents>& inputs, const Contents& expected, const Buffers& buffers);
  void report(const Case& c, int rank, const std::string& problem);

  RankThreads& threads_;
  int jitterUs_ = 0;
  uint64_t hash_ = 0xcbf29ce484222325ull;
  std::atomic<int> failures_{0};
  // Of the cases in turn: each written by its rank before the first meeting, read by all until they come to the next case's first.
  std::vector<Contents> inputs_[2];
  std::vector<Contents> expected_;  // written by rank 0 between the meetings, read by all after the second
  std::vector<uint64_t> rounds_;    // cases so far, one a rank
};

/// The same for a rank that is alone in its process and computes for itself what all ranks give and get; in words what is wrong.
/// `fromMemAlloc`: its buffers, and a scalar on the device, come from ncclMemAlloc, whatever their alignment. `settle`, where there is one,
/// waits until a call that has returned is over.
std::string runCaseAlone(const Case& c, int rank, ncclComm_t comm, bool fromMemAlloc, const std::function<void()>& settle = nullptr);

}  // namespace tutti::conformance
