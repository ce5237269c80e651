// Measures the headers it is compiled with: every type, field, enumerator, macro, initializer and prototype, by name.
// A name that the table knows and this file does not (or the other way round) fails abi_layout_test.cc.
#pragma once

#include <nccl.h>
#include <nccl_device.h>
#if !defined(TUTTI_ABI_VENDOR)
#include <tutti.h>
#endif

#include <cstddef>
#include <string>
#include <type_traits>

#include "abi_table.h"

#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // ncclResetDebugInit is named, never called
#endif

namespace tutti::abi {

// Nulls must read as 0 whether the macro is an integer or a pointer.
inline const void* asPointer(const void* pointer) { return pointer; }

#define STRUCT(T) m.type<T>("struct", #T)
#define TYPE(T) m.type<T>("type", #T)
#define FIELD(T, F) m.field(#T, #F, offsetof(T, F), sizeof(T::F))
#define ENUM(T, E)                                                              \
  static_assert(std::is_same_v<decltype(E), T>, #E " belongs to another enum"); \
  m.enumerator(#T, #E, E)
#define MACRO(M) m.macro("nccl", #M, M)
#define FUNCTION(F) m.function<decltype(F)>("nccl", #F)
// Functions whose name the C++ header may overload for kernels: the C prototype is picked by its type.
#define OVERLOADED(F, ...) m.function<std::remove_pointer_t<decltype(static_cast<__VA_ARGS__>(&F))>>("nccl", #F)

inline void measureHostStructs(Measured& m) {
  STRUCT(ncclUniqueId);
  FIELD(ncclUniqueId, internal);

  STRUCT(ncclConfig_t);
  FIELD(ncclConfig_t, size);
  FIELD(ncclConfig_t, magic);
  FIELD(ncclConfig_t, version);
  FIELD(ncclConfig_t, blocking);
  FIELD(ncclConfig_t, cgaClusterSize);
  FIELD(ncclConfig_t, minCTAs);
  FIELD(ncclConfig_t, maxCTAs);
  FIELD(ncclConfig_t, netName);
  FIELD(ncclConfig_t, splitShare);
  FIELD(ncclConfig_t, trafficClass);
  FIELD(ncclConfig_t, commName);
  FIELD(ncclConfig_t, collnetEnable);
  FIELD(ncclConfig_t, CTAPolicy);
  FIELD(ncclConfig_t, shrinkShare);
  FIELD(ncclConfig_t, nvlsCTAs);
  FIELD(ncclConfig_t, nChannelsPerNetPeer);
  FIELD(ncclConfig_t, nvlinkCentricSched);

  STRUCT(ncclSimInfo_t);
  FIELD(ncclSimInfo_t, size);
  FIELD(ncclSimInfo_t, magic);
  FIELD(ncclSimInfo_t, version);
  FIELD(ncclSimInfo_t, estimatedTime);

  TYPE(ncclComm_t);
  TYPE(ncclWindow_t);
}

inline void measureRequirements(Measured& m) {
  STRUCT(ncclTeam_t);
  FIELD(ncclTeam_t, nRanks);
  FIELD(ncclTeam_t, rank);
  FIELD(ncclTeam_t, stride);

  STRUCT(ncclDevCommRequirements_t);
  FIELD(ncclDevCommRequirements_t, resourceRequirementsList);
  FIELD(ncclDevCommRequirements_t, teamRequirementsList);
  FIELD(ncclDevCommRequirements_t, lsaMultimem);
  FIELD(ncclDevCommRequirements_t, barrierCount);
  FIELD(ncclDevCommRequirements_t, lsaBarrierCount);
  FIELD(ncclDevCommRequirements_t, railGinBarrierCount);
  FIELD(ncclDevCommRequirements_t, lsaLLA2ABlockCount);
  FIELD(ncclDevCommRequirements_t, lsaLLA2ASlotCount);
  FIELD(ncclDevCommRequirements_t, ginForceEnable);
  FIELD(ncclDevCommRequirements_t, ginContextCount);
  FIELD(ncclDevCommRequirements_t, ginSignalCount);
  FIELD(ncclDevCommRequirements_t, ginCounterCount);

  STRUCT(ncclDevResourceRequirements_t);
  FIELD(ncclDevResourceRequirements_t, next);
  FIELD(ncclDevResourceRequirements_t, bufferSize);
  FIELD(ncclDevResourceRequirements_t, bufferAlign);
  FIELD(ncclDevResourceRequirements_t, outBufferHandle);
  FIELD(ncclDevResourceRequirements_t, ginSignalCount);
  FIELD(ncclDevResourceRequirements_t, ginCounterCount);
  FIELD(ncclDevResourceRequirements_t, outGinSignalStart);
  FIELD(ncclDevResourceRequirements_t, outGinCounterStart);

  STRUCT(ncclTeamRequirements_t);
  FIELD(ncclTeamRequirements_t, next);
  FIELD(ncclTeamRequirements_t, team);
  FIELD(ncclTeamRequirements_t, multimem);
  FIELD(ncclTeamRequirements_t, outMultimemHandle);
}

inline void measureHandles(Measured& m) {
  STRUCT(ncclMultimemHandle_t);
  FIELD(ncclMultimemHandle_t, mcBasePtr);
  STRUCT(ncclLsaBarrierHandle_t);
  FIELD(ncclLsaBarrierHandle_t, bufHandle);
  FIELD(ncclLsaBarrierHandle_t, nBarriers);
  STRUCT(ncclGinBarrierHandle_t);
  FIELD(ncclGinBarrierHandle_t, signal0);
  FIELD(ncclGinBarrierHandle_t, bufHandle);
  STRUCT(ncclLLA2AHandle_t);
  FIELD(ncclLLA2AHandle_t, bufHandle);
  FIELD(ncclLLA2AHandle_t, nSlots);
  TYPE(ncclGinWindow_t);
  TYPE(ncclDevResourceHandle_t);
  TYPE(ncclGinSignal_t);
  TYPE(ncclGinCounter_t);
}

inline void measureKernelStructs(Measured& m) {
  STRUCT(ncclWindow_vidmem);
  FIELD(ncclWindow_vidmem, winHost);
  FIELD(ncclWindow_vidmem, lsaFlatBase);
  FIELD(ncclWindow_vidmem, lsaRank);
  FIELD(ncclWindow_vidmem, worldRank);
  FIELD(ncclWindow_vidmem, stride4G);
  FIELD(ncclWindow_vidmem, mcOffset4K);
  FIELD(ncclWindow_vidmem, ginOffset4K);
  FIELD(ncclWindow_vidmem, ginWins);

  STRUCT(ncclDevComm_t);
  FIELD(ncclDevComm_t, rank);
  FIELD(ncclDevComm_t, nRanks);
  FIELD(ncclDevComm_t, nRanks_rcp32);
  FIELD(ncclDevComm_t, lsaRank);
  FIELD(ncclDevComm_t, lsaSize);
  FIELD(ncclDevComm_t, lsaSize_rcp32);
  FIELD(ncclDevComm_t, windowTable);
  FIELD(ncclDevComm_t, resourceWindow);
  FIELD(ncclDevComm_t, resourceWindow_inlined);
  FIELD(ncclDevComm_t, lsaMultimem);
  FIELD(ncclDevComm_t, lsaBarrier);
  FIELD(ncclDevComm_t, railGinBarrier);
  FIELD(ncclDevComm_t, ginContextCount);
  FIELD(ncclDevComm_t, ginTypes);
  FIELD(ncclDevComm_t, ginHandles);
  FIELD(ncclDevComm_t, ginSignalBase);
  FIELD(ncclDevComm_t, ginSignalCount);
  FIELD(ncclDevComm_t, ginCounterBase);
  FIELD(ncclDevComm_t, ginCounterCount);
  FIELD(ncclDevComm_t, ginSignalShadows);

  STRUCT(ncclDevCommWindowTable);
  FIELD(ncclDevCommWindowTable, entries);
  FIELD(ncclDevCommWindowTable, next);
  STRUCT(ncclDevCommWindowTable::Entry);
  FIELD(ncclDevCommWindowTable::Entry, base);
  FIELD(ncclDevCommWindowTable::Entry, size);
  FIELD(ncclDevCommWindowTable::Entry, window);
}

inline void measureEnums(Measured& m) {
  ENUM(ncclResult_t, ncclSuccess);
  ENUM(ncclResult_t, ncclUnhandledCudaError);
  ENUM(ncclResult_t, ncclSystemError);
  ENUM(ncclResult_t, ncclInternalError);
  ENUM(ncclResult_t, ncclInvalidArgument);
  ENUM(ncclResult_t, ncclInvalidUsage);
  ENUM(ncclResult_t, ncclRemoteError);
  ENUM(ncclResult_t, ncclInProgress);
  ENUM(ncclResult_t, ncclNumResults);

  ENUM(ncclDataType_t, ncclInt8);
  ENUM(ncclDataType_t, ncclChar);
  ENUM(ncclDataType_t, ncclUint8);
  ENUM(ncclDataType_t, ncclInt32);
  ENUM(ncclDataType_t, ncclInt);
  ENUM(ncclDataType_t, ncclUint32);
  ENUM(ncclDataType_t, ncclInt64);
  ENUM(ncclDataType_t, ncclUint64);
  ENUM(ncclDataType_t, ncclFloat16);
  ENUM(ncclDataType_t, ncclHalf);
  ENUM(ncclDataType_t, ncclFloat32);
  ENUM(ncclDataType_t, ncclFloat);
  ENUM(ncclDataType_t, ncclFloat64);
  ENUM(ncclDataType_t, ncclDouble);
  ENUM(ncclDataType_t, ncclBfloat16);
  ENUM(ncclDataType_t, ncclFloat8e4m3);
  ENUM(ncclDataType_t, ncclFloat8e5m2);
  ENUM(ncclDataType_t, ncclNumTypes);

  ENUM(ncclRedOp_dummy_t, ncclNumOps_dummy);
  ENUM(ncclRedOp_t, ncclSum);
  ENUM(ncclRedOp_t, ncclProd);
  ENUM(ncclRedOp_t, ncclMax);
  ENUM(ncclRedOp_t, ncclMin);
  ENUM(ncclRedOp_t, ncclAvg);
  ENUM(ncclRedOp_t, ncclNumOps);
  ENUM(ncclRedOp_t, ncclMaxRedOp);

  ENUM(ncclScalarResidence_t, ncclScalarDevice);
  ENUM(ncclScalarResidence_t, ncclScalarHostImmediate);

  ENUM(ncclNetDeviceType, NCCL_NET_DEVICE_HOST);
  ENUM(ncclNetDeviceType, NCCL_NET_DEVICE_UNPACK);
  ENUM(ncclNetDeviceType, NCCL_NET_DEVICE_GIN_PROXY);
  ENUM(ncclNetDeviceType, NCCL_NET_DEVICE_GIN_GDAKI);
}

inline void measureMacros(Measured& m) {
  MACRO(NCCL_MAJOR);
  MACRO(NCCL_MINOR);
  MACRO(NCCL_PATCH);
  MACRO(NCCL_VERSION_CODE);
  MACRO(NCCL_UNIQUE_ID_BYTES);
  MACRO(NCCL_CONFIG_UNDEF_INT);
  MACRO(NCCL_UNDEF_FLOAT);
  MACRO(NCCL_SPLIT_NOCOLOR);
  MACRO(NCCL_WIN_DEFAULT);
  MACRO(NCCL_WIN_COLL_SYMMETRIC);
  MACRO(NCCL_WIN_REQUIRED_ALIGNMENT);
  MACRO(NCCL_CTA_POLICY_DEFAULT);
  MACRO(NCCL_CTA_POLICY_EFFICIENCY);
  MACRO(NCCL_CTA_POLICY_ZERO);
  MACRO(NCCL_SHRINK_DEFAULT);
  MACRO(NCCL_SHRINK_ABORT);
  MACRO(NCCL_REVOKE_DEFAULT);
  MACRO(NCCL_GIN_MAX_CONTEXTS);
  m.macro("nccl", "NCCL_SUFFIX", '\'' + std::string(NCCL_SUFFIX) + '\'');
  m.macro("nccl", "NCCL_COMM_NULL", asPointer(NCCL_COMM_NULL));
  m.macro("nccl", "NCCL_CONFIG_UNDEF_PTR", asPointer(NCCL_CONFIG_UNDEF_PTR));
  m.macro("nccl", "NCCL_VERSION(2;28;9)", NCCL_VERSION(2, 28, 9));
  m.macro("nccl", "NCCL_VERSION(2;9;0)", NCCL_VERSION(2, 9, 0));
  m.macro("nccl", "NCCL_VERSION(2;8;4)", NCCL_VERSION(2, 8, 4));
#if !defined(TUTTI_ABI_VENDOR)
  m.macro("tutti", "TUTTI_MAJOR", TUTTI_MAJOR);
  m.macro("tutti", "TUTTI_MINOR", TUTTI_MINOR);
  m.macro("tutti", "TUTTI_PATCH", TUTTI_PATCH);
  m.macro("tutti", "TUTTI_VERSION_CODE", TUTTI_VERSION_CODE);
#endif
}

inline void measureInitializers(Measured& m) {
  const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  m.initial("ncclConfig_t", "size", config.size);
  m.initial("ncclConfig_t", "magic", config.magic);
  m.initial("ncclConfig_t", "version", config.version);
  m.initial("ncclConfig_t", "blocking", config.blocking);
  m.initial("ncclConfig_t", "cgaClusterSize", config.cgaClusterSize);
  m.initial("ncclConfig_t", "minCTAs", config.minCTAs);
  m.initial("ncclConfig_t", "maxCTAs", config.maxCTAs);
  m.initial("ncclConfig_t", "netName", asPointer(config.netName));
  m.initial("ncclConfig_t", "splitShare", config.splitShare);
  m.initial("ncclConfig_t", "trafficClass", config.trafficClass);
  m.initial("ncclConfig_t", "commName", asPointer(config.commName));
  m.initial("ncclConfig_t", "collnetEnable", config.collnetEnable);
  m.initial("ncclConfig_t", "CTAPolicy", config.CTAPolicy);
  m.initial("ncclConfig_t", "shrinkShare", config.shrinkShare);
  m.initial("ncclConfig_t", "nvlsCTAs", config.nvlsCTAs);
  m.initial("ncclConfig_t", "nChannelsPerNetPeer", config.nChannelsPerNetPeer);
  m.initial("ncclConfig_t", "nvlinkCentricSched", config.nvlinkCentricSched);

  const ncclSimInfo_t simInfo = NCCL_SIM_INFO_INITIALIZER;
  m.initial("ncclSimInfo_t", "size", simInfo.size);
  m.initial("ncclSimInfo_t", "magic", simInfo.magic);
  m.initial("ncclSimInfo_t", "version", simInfo.version);
  m.initial("ncclSimInfo_t", "estimatedTime", simInfo.estimatedTime);
}

inline void measureCommFunctions(Measured& m) {
#define PAIR(X)                                                                                          \
  static_assert(std::is_same_v<decltype(nccl##X), decltype(pnccl##X)>, #X " differs from its p-twin");   \
  FUNCTION(nccl##X)
  PAIR(GetVersion);
  PAIR(GetUniqueId);
  PAIR(GetErrorString);
  PAIR(GetLastError);
  PAIR(ResetDebugInit);
  PAIR(CommInitRank);
  PAIR(CommInitRankConfig);
  PAIR(CommInitRankScalable);
  PAIR(CommInitAll);
  PAIR(CommSplit);
  PAIR(CommShrink);
  PAIR(CommFinalize);
  PAIR(CommDestroy);
  PAIR(CommAbort);
  PAIR(CommRevoke);
  PAIR(CommGetAsyncError);
  PAIR(CommCount);
  PAIR(CommCuDevice);
  PAIR(CommUserRank);
  PAIR(MemAlloc);
  PAIR(MemFree);
  PAIR(CommRegister);
  PAIR(CommDeregister);
  PAIR(CommWindowRegister);
  PAIR(CommWindowDeregister);
}

inline void measureOperationFunctions(Measured& m) {
  PAIR(RedOpCreatePreMulSum);
  PAIR(RedOpDestroy);
  PAIR(Reduce);
  PAIR(Bcast);
  PAIR(Broadcast);
  PAIR(AllReduce);
  PAIR(ReduceScatter);
  PAIR(AllGather);
  PAIR(AlltoAll);
  PAIR(Gather);
  PAIR(Scatter);
  PAIR(Send);
  PAIR(Recv);
  PAIR(GroupStart);
  PAIR(GroupEnd);
  PAIR(GroupSimulateEnd);
}

inline void measureDeviceFunctions(Measured& m) {
  using Team = ncclTeam_t (*)(ncclComm_t);
  using RankOf = int (*)(ncclComm_t, ncclTeam_t, int);
  FUNCTION(ncclDevCommCreate);
  FUNCTION(ncclDevCommDestroy);
  FUNCTION(ncclLsaBarrierCreateRequirement);
  FUNCTION(ncclGinBarrierCreateRequirement);
  FUNCTION(ncclLLA2ACreateRequirement);
  FUNCTION(ncclLLA2ACalcSlots);
  OVERLOADED(ncclTeamWorld, Team);
  OVERLOADED(ncclTeamLsa, Team);
  OVERLOADED(ncclTeamRail, Team);
  OVERLOADED(ncclTeamRankToWorld, RankOf);
  OVERLOADED(ncclTeamRankToLsa, RankOf);
}

#if !defined(TUTTI_ABI_VENDOR)
// What the vendor's header does not declare: the p-twins of the device functions, and everything of tutti's own.
inline void measureOwnFunctions(Measured& m) {
#define TWIN(X) static_assert(std::is_same_v<decltype(nccl##X), decltype(pnccl##X)>, #X " differs from its p-twin")
  TWIN(DevCommCreate);
  TWIN(DevCommDestroy);
  TWIN(LsaBarrierCreateRequirement);
  TWIN(GinBarrierCreateRequirement);
  TWIN(LLA2ACreateRequirement);
  TWIN(LLA2ACalcSlots);
  TWIN(TeamWorld);
  TWIN(TeamLsa);
  TWIN(TeamRail);
  TWIN(TeamRankToWorld);
  TWIN(TeamRankToLsa);

#define OWN(F) m.function<decltype(F)>("tutti", #F)
  OWN(ncclResetDebugInitInternal);
  OWN(tuttiVersion);
  OWN(tuttiVersionString);
  OWN(tuttiSetHostDevice);
  OWN(tuttiGetHostDevice);
  OWN(tuttiGetHostDeviceCount);
  OWN(tuttiStreamCreate);
  OWN(tuttiStreamDestroy);
  OWN(tuttiStreamSynchronize);
  OWN(tuttiStreamQuery);
  OWN(tuttiCommGetMemory);
  OWN(tuttiCommGetVerdict);
  OWN(tuttiCommSetTimeout);
  OWN(tuttiExplain);
  OWN(tuttiReadFlightRecorder);
}
#endif

inline Table measureHeader() {
  Measured m;
  measureHostStructs(m);
  measureRequirements(m);
  measureHandles(m);
  measureKernelStructs(m);
  measureEnums(m);
  measureMacros(m);
  measureInitializers(m);
  measureCommFunctions(m);
  measureOperationFunctions(m);
  measureDeviceFunctions(m);
#if !defined(TUTTI_ABI_VENDOR)
  measureOwnFunctions(m);
#endif
  return m.table;
}

}  // namespace tutti::abi

#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
