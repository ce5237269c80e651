// Whether the programs of an algorithm fit into a kernel, on every rank of a communicator: so that all ranks choose alike.
//
// Owner: the planner; one thread. Each answer is found once.
#pragma once

#include <map>
#include <tuple>

#include "connect/layout.h"
#include "exec/cuda/launch.h"
#include "exec/record/catalog.h"

namespace tutti::plan {

struct DeviceFit {
  Status status;       ///< what does not fit; of the first rank
  uint64_t ports = 0;  ///< bits: ports of all ranks' pipes; ports of 63 and more share a bit
};

class DeviceFits {
 public:
  /// `layout` outlives it.
  explicit DeviceFits(const connect::Layout& layout) : layout_(layout) {}

  /// Of kernels that have what the algorithm needs, pipes or windows.
  const DeviceFit& of(const exec::record::Algorithm& algorithm, exec::cuda::KernelId kernel, Rank root);

 private:
  DeviceFit find(const exec::record::Algorithm& algorithm, exec::cuda::KernelId kernel, Rank root) const;

  const connect::Layout& layout_;
  std::map<std::tuple<const exec::record::Algorithm*, bool, int32_t>, DeviceFit> known_;  // algorithm, Window's or not, root
};

}  // namespace tutti::plan
