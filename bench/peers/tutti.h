// tutti as one of the compared libraries; and, since all ranks have it, what they agree on by.
// A process's one thread.
#pragma once

#include <vector>

#include "nccl.h"
#include "peers/library.h"

namespace tutti::bench {

class Tutti final : public Library {
 public:
  /// The communicator of all ranks of the job that a launcher has started.
  static std::unique_ptr<Tutti> connect();
  ~Tutti() override;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  /// Each element becomes the largest that any rank has.
  void agreeOnMax(std::vector<double>& values);
  /// Each element becomes the sum over the ranks.
  void agreeOnSum(std::vector<double>& values);

  std::string name() const override { return "tutti"; }
  void barrier() override;
  void allReduce(const float* in, float* out, size_t count) override;
  void allGather(const float* in, float* out, size_t part) override;
  void reduceScatter(const float* in, float* out, size_t part) override;
  void allToAll(const float* in, float* out, size_t part) override;
  void broadcast(float* data, size_t count, int root) override;
  void sendReceive(const float* in, int to, float* out, int from, size_t count) override;

 private:
  Tutti(int rank, int ranks) : rank_(rank), ranks_(ranks) {}
  void check(ncclResult_t result) const;

  const int rank_;
  const int ranks_;
  ncclComm_t comm_ = nullptr;
};

}  // namespace tutti::bench
