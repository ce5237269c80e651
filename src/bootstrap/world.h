// What a service knows of the world around it, as a parameter: variables, the machine, its interfaces. Tests give one of their own, and so
// make several "hosts" and "processes" of one process.
//
// Owner: the service. Functions are called by any thread, at set-up only.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bootstrap/interfaces.h"

namespace tutti::bootstrap {

/// Variables of the environment (docs/env.md).
struct Settings {
  std::string interfaceNames;  ///< NCCL_SOCKET_IFNAME
  std::string family;          ///< NCCL_SOCKET_FAMILY
  std::string commId;          ///< NCCL_COMM_ID
  std::string jobSecret;       ///< TUTTI_JOB_SECRET
  std::string hostId;          ///< NCCL_HOSTID
  int64_t retries = 34;        ///< NCCL_SOCKET_RETRY_CNT
  int64_t retrySleepMs = 100;  ///< NCCL_SOCKET_RETRY_SLEEP_MSEC
  bool namesThreads = false;   ///< NCCL_SET_THREAD_NAME
};
Settings readSettings();

/// Which machine this is. Processes of one identity share memory and abstract sockets.
struct HostFacts {
  std::string name;           ///< cut at the first dot
  std::string bootId;         ///< of the running kernel; empty when it does not say
  uint64_t networkSpace = 0;  ///< inode of the network namespace: a namespace counts as a host
};
HostFacts readHostFacts();
/// NCCL_HOSTID, when set, stands for name and boot id.
uint64_t identityOf(const HostFacts& facts, const std::string& hostId);

struct World {
  std::function<Settings()> settings = readSettings;
  std::function<HostFacts()> host = readHostFacts;
  std::function<Result<std::vector<Interface>>()> interfaces = listInterfaces;
};

}  // namespace tutti::bootstrap
