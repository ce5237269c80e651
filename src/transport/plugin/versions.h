// The one table of plugin versions: each entry turns calls of the newest form into those of its version.
//
// No state. Thread rules are the plugin's. Codes are ncclResult_t.
// 1. `raw` is the plugin's struct of the entry's own version.
// 2. An entry is made from one template (versions.cc): a new version adds a struct in abi.h, a line to the table, and, where it
//    differs, a branch in a thunk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/net/network.h"
#include "transport/plugin/abi.h"

namespace tutti::transport::plugin {

struct Version {
  int number;
  const char* symbol;
  uint64_t maxMessageBytes;  ///< what its sizes can say
  bool initPerComm;          ///< else once in a process
  bool tellsTraffic;         ///< hears of the traffic class: in init or in connect

  const char* (*name)(const void* raw);
  /// Whether all functions that are needed are there.
  bool (*complete)(const void* raw);
  int (*init)(const void* raw, void** context, const net::Use& use, abi::Logger log);
  int (*devices)(const void* raw, int* count);
  /// Fields that the version does not have get their defaults.
  int (*getProperties)(const void* raw, int device, abi::PropertiesV11* properties);
  int (*listen)(const void* raw, void* context, int device, void* handle, void** listenComm);
  int (*connect)(const void* raw, void* context, int device, int trafficClass, void* handle, void** sendComm);
  int (*accept)(const void* raw, void* listenComm, void** recvComm);
  int (*regMr)(const void* raw, void* comm, void* data, size_t size, int type, void** mhandle);
  int (*deregMr)(const void* raw, void* comm, void* mhandle);
  int (*isend)(const void* raw, void* sendComm, void* data, size_t size, int tag, void* mhandle, void** request);
  int (*irecv)(const void* raw, void* recvComm, void* data, size_t size, int tag, void* mhandle, void** request);
  int (*iflush)(const void* raw, void* recvComm, void* data, int size, void* mhandle, void** request);
  int (*test)(const void* raw, void* request, int* done, int* size);
  int (*closeSend)(const void* raw, void* comm);
  int (*closeRecv)(const void* raw, void* comm);
  int (*closeListen)(const void* raw, void* comm);
  int (*finalize)(const void* raw, void* context);
};

/// Newest first: the order in which a library is searched.
std::span<const Version> versions();

}  // namespace tutti::transport::plugin
