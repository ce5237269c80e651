// The binary interface of external networks, versions 8 to 11: facts of the ABI, in the words that plugins use for them.
//
// A plugin exports one variable for each version that it knows, `ncclNetPlugin_v11` and so on, of the type below. All functions return
// an ncclResult_t, which is an int here. Plain values.
// 1. Layouts never change: what differs between versions is another struct. Sizes and offsets are asserted.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::transport::plugin::abi {

inline constexpr size_t kHandleBytes = 128;
inline constexpr int kTrafficClassUndefined = -1;

using Logger = void (*)(int level, unsigned long flags, const char* file, int line, const char* format, ...);
using Profiler = int (*)(void** eventHandle, int type, void* parent, int64_t pluginId, void* extra);

struct VirtualDevice {
  int ndevs;
  int devs[4];
};
struct CommConfig {
  int trafficClass;
};

struct PropertiesV8 {
  char* name;
  char* pciPath;
  uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  int netDeviceType;
  int netDeviceVersion;
};
static_assert(sizeof(PropertiesV8) == 64 && offsetof(PropertiesV8, speed) == 32 && offsetof(PropertiesV8, netDeviceVersion) == 56);

struct PropertiesV9 {
  char* name;
  char* pciPath;
  uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int forceFlush;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  int netDeviceType;
  int netDeviceVersion;
  VirtualDevice vProps;
  size_t maxP2pBytes;
  size_t maxCollBytes;
};
static_assert(sizeof(PropertiesV9) == 104 && offsetof(PropertiesV9, speed) == 36 && offsetof(PropertiesV9, vProps) == 64);
static_assert(offsetof(PropertiesV9, maxP2pBytes) == 88);

struct PropertiesV11 : PropertiesV9 {
  int maxMultiRequestSize;
};
static_assert(sizeof(PropertiesV11) == 112);

/// Functions that are the same in all four versions, by their places: the structs below hold them between those that differ.
using Devices = int (*)(int* count);
using Accept = int (*)(void* listenComm, void** recvComm, void** deviceHandle);
using RegMr = int (*)(void* comm, void* data, size_t size, int type, void** mhandle);
using RegMrDmaBuf = int (*)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd, void** mhandle);
using DeregMr = int (*)(void* comm, void* mhandle);
using Iflush = int (*)(void* recvComm, int n, void** data, int* sizes, void** mhandles, void** request);
using Test = int (*)(void* request, int* done, int* sizes);
using Close = int (*)(void* comm);
using GetDeviceMr = int (*)(void* comm, void* mhandle, void** devicePointer);
using IrecvConsumed = int (*)(void* recvComm, int n, void* request);
using MakeVDevice = int (*)(int* device, VirtualDevice* members);

struct NetV8 {
  static constexpr int kVersion = 8;
  using Properties = PropertiesV8;
  using Size = int;
  const char* name;
  int (*init)(Logger log);
  Devices devices;
  int (*getProperties)(int device, PropertiesV8* properties);
  int (*listen)(int device, void* handle, void** listenComm);
  int (*connect)(int device, void* handle, void** sendComm, void** deviceHandle);
  Accept accept;
  RegMr regMr;
  RegMrDmaBuf regMrDmaBuf;
  DeregMr deregMr;
  int (*isend)(void* sendComm, void* data, int size, int tag, void* mhandle, void** request);
  int (*irecv)(void* recvComm, int n, void** data, int* sizes, int* tags, void** mhandles, void** request);
  Iflush iflush;
  Test test;
  Close closeSend;
  Close closeRecv;
  Close closeListen;
  GetDeviceMr getDeviceMr;
  IrecvConsumed irecvConsumed;
};
static_assert(sizeof(NetV8) == 19 * sizeof(void*) && offsetof(NetV8, isend) == 10 * sizeof(void*) &&
              offsetof(NetV8, irecvConsumed) == 18 * sizeof(void*));

struct NetV9 {
  static constexpr int kVersion = 9;
  using Properties = PropertiesV9;
  using Size = size_t;
  const char* name;
  int (*init)(Logger log);
  Devices devices;
  int (*getProperties)(int device, PropertiesV9* properties);
  int (*listen)(int device, void* handle, void** listenComm);
  int (*connect)(int device, void* handle, void** sendComm, void** deviceHandle);
  Accept accept;
  RegMr regMr;
  RegMrDmaBuf regMrDmaBuf;
  DeregMr deregMr;
  int (*isend)(void* sendComm, void* data, size_t size, int tag, void* mhandle, void** request);
  int (*irecv)(void* recvComm, int n, void** data, size_t* sizes, int* tags, void** mhandles, void** request);
  Iflush iflush;
  Test test;
  Close closeSend;
  Close closeRecv;
  Close closeListen;
  GetDeviceMr getDeviceMr;
  IrecvConsumed irecvConsumed;
  MakeVDevice makeVDevice;
};
static_assert(sizeof(NetV9) == 20 * sizeof(void*) && offsetof(NetV9, test) == 13 * sizeof(void*));

struct NetV10 {
  static constexpr int kVersion = 10;
  using Properties = PropertiesV9;
  using Size = size_t;
  const char* name;
  int (*init)(Logger log, Profiler profiler);
  Devices devices;
  int (*getProperties)(int device, PropertiesV9* properties);
  int (*listen)(int device, void* handle, void** listenComm);
  int (*connect)(int device, CommConfig* config, void* handle, void** sendComm, void** deviceHandle);
  Accept accept;
  RegMr regMr;
  RegMrDmaBuf regMrDmaBuf;
  DeregMr deregMr;
  int (*isend)(void* sendComm, void* data, size_t size, int tag, void* mhandle, void* profilerHandle, void** request);
  int (*irecv)(void* recvComm, int n, void** data, size_t* sizes, int* tags, void** mhandles, void** profilerHandles, void** request);
  Iflush iflush;
  Test test;
  Close closeSend;
  Close closeRecv;
  Close closeListen;
  GetDeviceMr getDeviceMr;
  IrecvConsumed irecvConsumed;
  MakeVDevice makeVDevice;
};
static_assert(sizeof(NetV10) == 20 * sizeof(void*) && offsetof(NetV10, connect) == 5 * sizeof(void*));

struct NetV11 {
  static constexpr int kVersion = 11;
  using Properties = PropertiesV11;
  using Size = size_t;
  const char* name;
  int (*init)(void** context, uint64_t commId, CommConfig* config, Logger log, Profiler profiler);
  Devices devices;
  int (*getProperties)(int device, PropertiesV11* properties);
  int (*listen)(void* context, int device, void* handle, void** listenComm);
  int (*connect)(void* context, int device, void* handle, void** sendComm, void** deviceHandle);
  Accept accept;
  RegMr regMr;
  RegMrDmaBuf regMrDmaBuf;
  DeregMr deregMr;
  int (*isend)(void* sendComm, void* data, size_t size, int tag, void* mhandle, void* profilerHandle, void** request);
  int (*irecv)(void* recvComm, int n, void** data, size_t* sizes, int* tags, void** mhandles, void** profilerHandles, void** request);
  Iflush iflush;
  Test test;
  Close closeSend;
  Close closeRecv;
  Close closeListen;
  GetDeviceMr getDeviceMr;
  IrecvConsumed irecvConsumed;
  MakeVDevice makeVDevice;
  int (*finalize)(void* context);
  int (*setNetAttr)(void* context, void* attributes);
};
static_assert(sizeof(NetV11) == 22 * sizeof(void*) && offsetof(NetV11, finalize) == 20 * sizeof(void*));

}  // namespace tutti::transport::plugin::abi
