// The few requests to the kernel's network configuration (rtnetlink) that namespaces which play hosts need.
//
// Each acts on the network namespace that the calling thread is in. One thread.
#pragma once

#include <cstdint>
#include <string>

#include "core/status.h"
#include "launch/descriptor.h"

namespace tutti::launch {

/// A pair of connected interfaces: `name` here, `peerName` in the namespace of `peer`.
Status addWire(const std::string& name, const std::string& peerName, int peer);
Status addBridge(const std::string& name);
/// Makes `name` a port of the bridge.
Status addToBridge(const std::string& name, const std::string& bridge);
Status bringUp(const std::string& name);
/// Returns when the interface carries traffic, which is a little after both of its ends are up.
Status waitUntilRunning(const std::string& name, Deadline deadline);
/// `address` in host byte order, within a network of `prefix` bits.
Status setAddress(const std::string& name, uint32_t address, int prefix);

}  // namespace tutti::launch
