/* nccl_device.h: the host side of the device interface of NCCL 2.28.9, as tutti provides it. C99 and later, C++11 and later.
 *
 * Declares the structs that pre-built kernels read and the functions that fill them. The kernel side (pointers into windows,
 * cooperative groups, barrier and exchange sessions, network initiated by the GPU) is not part of this version.
 *
 * 1. Nothing here carries a version: a kernel built with the 2.28 layout meets a library of the 2.28 layout or fails.
 * 2. Structs are zeroed before their first use; a requirements struct that is all zero asks for nothing.
 * 3. Requirements form lists through `next`; what they point to is written when ncclDevCommCreate, or the group around it, ends.
 */
#ifndef NCCL_DEVICE_H_
#define NCCL_DEVICE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nccl.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/* ---- Handles ------------------------------------------------------------------------------------------------------------ */

/* Most GIN contexts (GPU-initiated network) of one communicator. */
#define NCCL_GIN_MAX_CONTEXTS 4

/* Place of a resource: its byte offset in the resource window divided by 128. */
typedef uint32_t ncclDevResourceHandle;
typedef ncclDevResourceHandle ncclDevResourceHandle_t;

typedef uint32_t ncclGinSignal_t;
typedef uint32_t ncclGinCounter_t;
typedef void* ncclGinWindow_t;

/* What drives a network from the device; the values of ncclDevComm.ginTypes. */
typedef enum {
  NCCL_NET_DEVICE_HOST = 0,
  NCCL_NET_DEVICE_UNPACK = 1,
  NCCL_NET_DEVICE_GIN_PROXY = 2,
  NCCL_NET_DEVICE_GIN_GDAKI = 3
} ncclNetDeviceType;

/* A set of ranks at equal distances: the world rank of member i is base + (i - rank) * stride, where base is the caller's own
 * world rank and `rank` its position in the team. All zero: no team. */
typedef struct ncclTeam {
  int nRanks;
  int rank;
  int stride;
} ncclTeam_t;

typedef struct ncclMultimemHandle {
  void* mcBasePtr; /* start of the multicast mapping */
} ncclMultimemHandle_t;

typedef struct ncclLsaBarrierHandle {
  ncclDevResourceHandle_t bufHandle;
  int nBarriers;
} ncclLsaBarrierHandle_t;

typedef struct ncclGinBarrierHandle {
  ncclGinSignal_t signal0; /* first of the barrier's signals */
  ncclDevResourceHandle_t bufHandle;
} ncclGinBarrierHandle_t;

typedef struct ncclLLA2AHandle {
  ncclDevResourceHandle_t bufHandle;
  uint32_t nSlots;
} ncclLLA2AHandle_t;

/* ---- Requirements ------------------------------------------------------------------------------------------------------- */

/* A piece of the resource window and GIN signals and counters. Outputs may be NULL. */
typedef struct ncclDevResourceRequirements {
  struct ncclDevResourceRequirements* next;
  size_t bufferSize;  /* bytes on every rank */
  size_t bufferAlign; /* bytes */
  ncclDevResourceHandle_t* outBufferHandle;
  int ginSignalCount;
  int ginCounterCount;
  ncclGinSignal_t* outGinSignalStart;
  ncclGinCounter_t* outGinCounterStart;
} ncclDevResourceRequirements_t;

/* Multicast memory for a team. The output may be NULL. */
typedef struct ncclTeamRequirements {
  struct ncclTeamRequirements* next;
  ncclTeam_t team;
  bool multimem;
  ncclMultimemHandle_t* outMultimemHandle;
} ncclTeamRequirements_t;

/* All that a device communicator shall offer. */
typedef struct ncclDevCommRequirements {
  ncclDevResourceRequirements_t* resourceRequirementsList;
  ncclTeamRequirements_t* teamRequirementsList;
  bool lsaMultimem;        /* multicast over the LSA team */
  int barrierCount;        /* barriers over all ranks */
  int lsaBarrierCount;     /* barriers over the LSA team */
  int railGinBarrierCount; /* barriers over the rail team */
  int lsaLLA2ABlockCount;  /* small-message exchanges over the LSA team: thread blocks, */
  int lsaLLA2ASlotCount;   /* and slots of each */
  bool ginForceEnable;     /* GIN also where no requirement asks for it */
  int ginContextCount;     /* a hint */
  int ginSignalCount;      /* signals 0 to count-1 */
  int ginCounterCount;     /* counters 0 to count-1 */
} ncclDevCommRequirements_t;

/* ---- What kernels read -------------------------------------------------------------------------------------------------- */

/* A window; in device memory. The byte `offset` of LSA peer p lies at lsaFlatBase + p * stride4G * 4 GiB + offset, the multicast
 * one at the multicast base + mcOffset4K * 4096 + offset. */
struct ncclWindow_vidmem {
  void* winHost; /* the library's own; not for kernels */
  char* lsaFlatBase;
  int lsaRank;
  int worldRank;
  uint32_t stride4G;
  uint32_t mcOffset4K;
  uint32_t ginOffset4K;
  ncclGinWindow_t ginWins[NCCL_GIN_MAX_CONTEXTS];
};

/* The windows of a communicator by address; a list of tables. */
struct ncclDevCommWindowTable {
  struct
#ifdef __cplusplus
      Entry
#endif
  {
    uintptr_t base;
    uintptr_t size; /* bytes */
    ncclWindow_t window;
  } entries[32];
  struct ncclDevCommWindowTable* next;
};

/* A communicator as kernels see it; passed to them by value. *_rcp32 are reciprocals for division by multiplication. */
typedef struct ncclDevComm {
  int rank;
  int nRanks;
  uint32_t nRanks_rcp32;
  int lsaRank;
  int lsaSize;
  uint32_t lsaSize_rcp32;
  struct ncclDevCommWindowTable* windowTable;
  ncclWindow_t resourceWindow;
  struct ncclWindow_vidmem resourceWindow_inlined; /* copy of *resourceWindow */
  ncclMultimemHandle_t lsaMultimem;
  ncclLsaBarrierHandle_t lsaBarrier;
  ncclGinBarrierHandle_t railGinBarrier;
  uint8_t ginContextCount;
  uint8_t ginTypes[4]; /* ncclNetDeviceType of each context */
  void* ginHandles[4];
  uint32_t ginSignalBase;
  int ginSignalCount;
  uint32_t ginCounterBase;
  int ginCounterCount;
  uint64_t* ginSignalShadows;
} ncclDevComm_t;

/* ---- Functions ---------------------------------------------------------------------------------------------------------- */

/* Creates a device communicator and writes *outDevComm. Collective over comm; may be in a group. Multicast asked for where
 * there is none: ncclInvalidArgument. */
ncclResult_t ncclDevCommCreate(ncclComm_t comm, ncclDevCommRequirements_t const* reqs, ncclDevComm_t* outDevComm);
ncclResult_t pncclDevCommCreate(ncclComm_t comm, ncclDevCommRequirements_t const* reqs, ncclDevComm_t* outDevComm);

/* Frees what ncclDevCommCreate made; no kernel may use it any more. */
ncclResult_t ncclDevCommDestroy(ncclComm_t comm, ncclDevComm_t const* devComm);
ncclResult_t pncclDevCommDestroy(ncclComm_t comm, ncclDevComm_t const* devComm);

/* The teams of a rank: all ranks; those it reaches by load and store (consecutive ranks of one machine, LSA); those with its own
 * position in the other LSA teams (rail). On failure a team of zeros. */
ncclTeam_t ncclTeamWorld(ncclComm_t comm);
ncclTeam_t pncclTeamWorld(ncclComm_t comm);
ncclTeam_t ncclTeamLsa(ncclComm_t comm);
ncclTeam_t pncclTeamLsa(ncclComm_t comm);
ncclTeam_t ncclTeamRail(ncclComm_t comm);
ncclTeam_t pncclTeamRail(ncclComm_t comm);

/* World rank of member `rank` of a team. */
int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank);
int pncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank);

/* Position in the LSA team of member `rank` of a team. */
int ncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank);
int pncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank);

/* Each of the next three fills *outReq so that, once in the list of a device communicator's requirements, *outHandle is written.
 * nBarriers load/store barriers over `team`: */
ncclResult_t ncclLsaBarrierCreateRequirement(ncclTeam_t team, int nBarriers, ncclLsaBarrierHandle_t* outHandle,
                                             ncclDevResourceRequirements_t* outReq);
ncclResult_t pncclLsaBarrierCreateRequirement(ncclTeam_t team, int nBarriers, ncclLsaBarrierHandle_t* outHandle,
                                              ncclDevResourceRequirements_t* outReq);

/* nBarriers network barriers over `team`: */
ncclResult_t ncclGinBarrierCreateRequirement(ncclComm_t comm, ncclTeam_t team, int nBarriers, ncclGinBarrierHandle_t* outHandle,
                                             ncclDevResourceRequirements_t* outReq);
ncclResult_t pncclGinBarrierCreateRequirement(ncclComm_t comm, ncclTeam_t team, int nBarriers,
                                              ncclGinBarrierHandle_t* outHandle, ncclDevResourceRequirements_t* outReq);

/* nSlots slots of a small-message exchange for each of nBlocks thread blocks: */
ncclResult_t ncclLLA2ACreateRequirement(int nBlocks, int nSlots, ncclLLA2AHandle_t* outHandle,
                                        ncclDevResourceRequirements_t* outReq);
ncclResult_t pncclLLA2ACreateRequirement(int nBlocks, int nSlots, ncclLLA2AHandle_t* outHandle,
                                         ncclDevResourceRequirements_t* outReq);

/* Slots that an exchange of at most maxElts elements of at most maxEltSize bytes needs. */
int ncclLLA2ACalcSlots(int maxElts, int maxEltSize);
int pncclLLA2ACalcSlots(int maxElts, int maxEltSize);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
