// The nets of this machine as topologies know them, asked of the network that communicators would use.
//
// Any thread. A network is opened for the question and closed after it.
#pragma once

#include <string>
#include <vector>

#include "core/status.h"
#include "machine/survey.h"
#include "topo/detect/detect.h"
#include "topo/host_devices.h"
#include "transport/net/network.h"

namespace tutti::comm {

/// Of the devices of a network, in their order.
Result<std::vector<topo::detect::NetFacts>> netsOf(const transport::net::Network& network);
/// Of the network that NCCL_NET wants, or the usual one. That there is none is a note.
Result<std::vector<topo::detect::NetFacts>> findNets(std::vector<std::string>& notes);

/// The machine with the devices of a network as its nets: others that a file names are left out, since nobody can send over them. GUIDs
/// are numbered, so that hosts with the same nets have the same document.
Result<topo::Document> withNetsOf(const machine::Machine& machine, const transport::net::Network& network);

/// The machine with its nets; of its GPUs those with `devs`, by rank, or none where that is empty.
Status writeTopology(const std::string& path, const machine::Machine& machine, const std::vector<int>& devs);
/// The machine with its nets and these host devices.
Status writeHostTopology(const std::string& path, const machine::Machine& machine, const std::vector<topo::HostDevice>& devices);

}  // namespace tutti::comm
