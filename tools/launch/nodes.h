// Hosts played by network namespaces of this machine: what a job over several hosts needs, for tests on one.
//
// One thread, in a process that has no other: namespaces are entered to set them up. Needs CAP_SYS_ADMIN and CAP_NET_ADMIN.
// 1. Nothing has a name in the system: when the owner and the processes inside have ended, the kernel takes everything down.
// 2. Every node has a loopback and one interface, eth0, with an address of kNetwork; the first one also has the wires to the others.
#pragma once

#include <string>
#include <vector>

#include "core/status.h"
#include "launch/descriptor.h"

namespace tutti::launch {

inline constexpr int kMostNodes = 64;

class Nodes {
 public:
  Nodes() = default;
  /// `count` of them, from 2 to kMostNodes; the calling thread is in its own namespace afterwards, also after an error.
  static Result<Nodes> make(int count);

  int count() const { return static_cast<int>(namespaces_.size()); }
  int descriptor(int node) const { return namespaces_[static_cast<size_t>(node)].get(); }
  /// "10.213.0.1" for node 0.
  static std::string addressOf(int node);

 private:
  std::vector<Descriptor> namespaces_;
};

}  // namespace tutti::launch
