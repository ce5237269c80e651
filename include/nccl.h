/* nccl.h: the C interface of a collective-communication library, as tutti provides it.
 *
 * The names, prototypes, enum values and struct layouts are those of NCCL 2.28.9, so programs built against either header run
 * on either library. C99 and later, C++11 and later. What tutti offers beyond this interface is in tutti.h.
 *
 * Conventions of this file
 * 1. Counts are elements of the given datatype, never bytes. "n" is the number of ranks of the communicator.
 * 2. Every function ncclX is a weak symbol beside a strong pncclX with the same address: a tracing tool defines ncclX itself and
 *    calls pncclX.
 * 3. A communicator is used by one thread at a time. Safe at any time from any thread: ncclCommAbort, ncclCommGetAsyncError,
 *    ncclGetLastError, ncclGetErrorString, ncclGetVersion, ncclGetUniqueId, ncclMemAlloc, ncclMemFree.
 */
#ifndef NCCL_H_
#define NCCL_H_

#include <limits.h>
#include <stddef.h>

/* CUDA's own headers are used where they are found. Define TUTTI_NO_CUDA_HEADERS to do without them: cudaStream_t is then the
 * same opaque pointer that CUDA declares, so objects built both ways link together. */
#if !defined(TUTTI_NO_CUDA_HEADERS)
#if defined(__has_include)
#if __has_include(<cuda_runtime_api.h>)
#define TUTTI_HAS_CUDA_HEADERS 1
#endif
#elif defined(__CUDACC__)
#define TUTTI_HAS_CUDA_HEADERS 1
#endif
#endif

#if defined(TUTTI_HAS_CUDA_HEADERS)
/* The half, bfloat16 and fp8 headers come along because programs test __CUDA_BF16_TYPES_EXIST__ and __CUDA_FP8_TYPES_EXIST__
 * after including nccl.h to decide which datatypes they can fill. */
#include <cuda_runtime.h>
#include <cuda_fp16.h>
#if CUDART_VERSION >= 11000
#include <cuda_bf16.h>
#endif
#if defined(__cplusplus) && CUDART_VERSION >= 11080
#include <cuda_fp8.h>
#endif
#elif !defined(__DRIVER_TYPES_H__)
typedef struct CUstream_st* cudaStream_t;
#endif

/* ---- Version ------------------------------------------------------------------------------------------------------------ */

#define NCCL_MAJOR 2
#define NCCL_MINOR 28
#define NCCL_PATCH 9
#define NCCL_SUFFIX ""

/* Up to 2.8 a version was X*1000 + Y*100 + Z; since 2.9 it is X*10000 + Y*100 + Z. */
#define NCCL_VERSION_CODE 22809
#define NCCL_VERSION(X, Y, Z) \
  (((X) <= 2 && (Y) <= 8) ? (X) * 1000 + (Y) * 100 + (Z) : (X) * 10000 + (Y) * 100 + (Z))

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/* ---- Handles ------------------------------------------------------------------------------------------------------------ */

/* One rank's communicator. */
typedef struct ncclComm* ncclComm_t;
#define NCCL_COMM_NULL NULL

/* A registered window. Its contents, where they may be read at all, are declared in nccl_device.h. */
typedef struct ncclWindow_vidmem* ncclWindow_t;

/* Identifies one communicator to be created. Opaque bytes; passed by value; copy it to the other ranks by any means. */
#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
  char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

/* ---- Results ------------------------------------------------------------------------------------------------------------ */

typedef enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1, /* a CUDA call failed */
  ncclSystemError = 2,        /* a socket, file, memory or plugin call failed */
  ncclInternalError = 3,      /* the library broke a rule of its own, or a plugin misbehaved */
  ncclInvalidArgument = 4,    /* a bad value */
  ncclInvalidUsage = 5,       /* a bad sequence or combination of calls */
  ncclRemoteError = 6,        /* a peer left or the network failed */
  ncclInProgress = 7,         /* a non-blocking communicator goes on in the background */
  ncclNumResults = 8
} ncclResult_t;

/* ---- Constants ---------------------------------------------------------------------------------------------------------- */

/* "Not set" in ncclConfig_t and ncclSimInfo_t. */
#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL
#define NCCL_UNDEF_FLOAT -1.0f

/* Colour of a rank that takes part in ncclCommSplit without becoming a member of a new communicator. */
#define NCCL_SPLIT_NOCOLOR -1

/* Flags of ncclCommWindowRegister. COLL_SYMMETRIC promises that in every call all ranks pass the same offset into the window. */
#define NCCL_WIN_DEFAULT 0x00
#define NCCL_WIN_COLL_SYMMETRIC 0x01

/* Alignment of a window, in bytes, relative to the start of its allocation. */
#define NCCL_WIN_REQUIRED_ALIGNMENT 4096

/* Values of ncclConfig_t.CTAPolicy: balanced, fewer thread blocks, none where copy engines can do the work. */
#define NCCL_CTA_POLICY_DEFAULT 0x00
#define NCCL_CTA_POLICY_EFFICIENCY 0x01
#define NCCL_CTA_POLICY_ZERO 0x02

/* Flags of ncclCommShrink: the parent is healthy, or: stop the parent's work in flight first. */
#define NCCL_SHRINK_DEFAULT 0x00
#define NCCL_SHRINK_ABORT 0x01

/* Flags of ncclCommRevoke; no other value exists. */
#define NCCL_REVOKE_DEFAULT 0x00

/* ---- Configuration ------------------------------------------------------------------------------------------------------ */

/* Options of a new communicator. Always start from NCCL_CONFIG_INITIALIZER; size, magic and version belong to it. A library newer
 * or older than the header copies the part that both know. All ranks should pass the same values. Environment variables win. */
typedef struct ncclConfig_v22800 {
  size_t size;             /* bytes of this struct as the caller knows it */
  unsigned int magic;      /* 0xcafebeef */
  unsigned int version;    /* NCCL_VERSION_CODE of the caller's header */
  int blocking;            /* 1 (default): calls return when done or queued; 0: they may return ncclInProgress */
  int cgaClusterSize;      /* thread blocks of a cluster, >= 0 */
  int minCTAs;             /* thread blocks a call uses at least; needs maxCTAs as well */
  int maxCTAs;             /* and at most; above 64 means 64 */
  const char* netName;     /* network to use, any letter case; copied during the call */
  int splitShare;          /* 1: children of ncclCommSplit share the parent's resources */
  int trafficClass;        /* handed to the network */
  const char* commName;    /* shown in logs and profiles; copied during the call */
  int collnetEnable;       /* 1: use reductions in the network where there are any */
  int CTAPolicy;           /* one of NCCL_CTA_POLICY_* */
  int shrinkShare;         /* 1: children of ncclCommShrink share the parent's resources */
  int nvlsCTAs;            /* thread blocks of multicast collectives, > 0 */
  int nChannelsPerNetPeer; /* channels to each peer over the network, 1 to 64 */
  int nvlinkCentricSched;  /* 1: schedule for NVLink first */
} ncclConfig_t;

#define NCCL_CONFIG_INITIALIZER                                                 \
  {                                                                             \
    sizeof(ncclConfig_t),                             /* size */                \
    0xcafebeef,                                       /* magic */               \
    NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH), /* version */             \
    NCCL_CONFIG_UNDEF_INT,                            /* blocking */            \
    NCCL_CONFIG_UNDEF_INT,                            /* cgaClusterSize */      \
    NCCL_CONFIG_UNDEF_INT,                            /* minCTAs */             \
    NCCL_CONFIG_UNDEF_INT,                            /* maxCTAs */             \
    NCCL_CONFIG_UNDEF_PTR,                            /* netName */             \
    NCCL_CONFIG_UNDEF_INT,                            /* splitShare */          \
    NCCL_CONFIG_UNDEF_INT,                            /* trafficClass */        \
    NCCL_CONFIG_UNDEF_PTR,                            /* commName */            \
    NCCL_CONFIG_UNDEF_INT,                            /* collnetEnable */       \
    NCCL_CONFIG_UNDEF_INT,                            /* CTAPolicy */           \
    NCCL_CONFIG_UNDEF_INT,                            /* shrinkShare */         \
    NCCL_CONFIG_UNDEF_INT,                            /* nvlsCTAs */            \
    NCCL_CONFIG_UNDEF_INT,                            /* nChannelsPerNetPeer */ \
    NCCL_CONFIG_UNDEF_INT                             /* nvlinkCentricSched */  \
  }

/* What ncclGroupSimulateEnd found out. Always start from NCCL_SIM_INFO_INITIALIZER. */
typedef struct ncclSimInfo_v22200 {
  size_t size;          /* bytes of this struct as the caller knows it */
  unsigned int magic;   /* 0x74685283 */
  unsigned int version; /* NCCL_VERSION_CODE of the caller's header */
  float estimatedTime;  /* microseconds; NCCL_UNDEF_FLOAT when nothing could be estimated */
} ncclSimInfo_t;

#define NCCL_SIM_INFO_INITIALIZER                                         \
  {                                                                       \
    sizeof(ncclSimInfo_t),                            /* size */          \
    0x74685283,                                       /* magic */         \
    NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH), /* version */       \
    NCCL_UNDEF_FLOAT                                  /* estimatedTime */ \
  }

/* ---- Datatypes and operators -------------------------------------------------------------------------------------------- */

typedef enum {
  ncclInt8 = 0,
  ncclChar = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclInt = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclHalf = 6,
  ncclFloat32 = 7,
  ncclFloat = 7,
  ncclFloat64 = 8,
  ncclDouble = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11,
  ncclNumTypes = 12
} ncclDataType_t;

/* Exists only so that ncclMaxRedOp can be computed from the size of an enum. */
typedef enum { ncclNumOps_dummy = 5 } ncclRedOp_dummy_t;

/* Reduction operators. Values from ncclNumOps to ncclMaxRedOp are handles made by ncclRedOpCreate*. Integers wrap in their type;
 * ncclAvg on integers divides the wrapped sum by n, truncating toward zero, and on floats scales each contribution by 1/n.
 * ncclMax and ncclMin on floats return a NaN only where every rank holds one. */
typedef enum {
  ncclSum = 0,
  ncclProd = 1,
  ncclMax = 2,
  ncclMin = 3,
  ncclAvg = 4,
  ncclNumOps = 5,
  ncclMaxRedOp = 0x7fffffff >> (32 - 8 * sizeof(ncclRedOp_dummy_t))
} ncclRedOp_t;

/* Where, and when, the scalar of ncclRedOpCreatePreMulSum is read. */
typedef enum {
  ncclScalarDevice = 0,       /* by the device, in stream order, whenever an operation runs; keep it valid until then */
  ncclScalarHostImmediate = 1 /* by the host, before the create call returns */
} ncclScalarResidence_t;

/* ---- Library ------------------------------------------------------------------------------------------------------------ */

/* Version of the library, as NCCL_VERSION_CODE. Needs no GPU and no communicator. NULL: ncclInvalidArgument. */
ncclResult_t ncclGetVersion(int* version);
ncclResult_t pncclGetVersion(int* version);

/* A new id for one communicator to be created; the ranks meet through the process that called this. NULL: ncclInvalidArgument;
 * no usable interface: ncclSystemError or ncclInvalidUsage. Any number of ids may be made and never used. */
ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId);
ncclResult_t pncclGetUniqueId(ncclUniqueId* uniqueId);

/* A constant text for a result code; never NULL, also for values that are not result codes. */
const char* ncclGetErrorString(ncclResult_t result);
const char* pncclGetErrorString(ncclResult_t result);

/* Text of the latest error of this process; never NULL, "" before the first. comm may be NULL. The text stays valid for the life
 * of the process but changes with the next error. */
const char* ncclGetLastError(ncclComm_t comm);
const char* pncclGetLastError(ncclComm_t comm);

/* Reads the NCCL_DEBUG* variables again. ncclResetDebugInitInternal is the same call for programs that look it up by name. */
#if defined(__GNUC__)
__attribute__((deprecated("set NCCL_DEBUG before the first call instead")))
#endif
void ncclResetDebugInit(void);
#if defined(__GNUC__)
__attribute__((deprecated("set NCCL_DEBUG before the first call instead")))
#endif
void pncclResetDebugInit(void);
void ncclResetDebugInitInternal(void);

/* ---- Communicators: creation -------------------------------------------------------------------------------------------- */

/* Creates rank `rank` (0 to nranks-1) of a communicator of `nranks` ranks. Collective: returns once all ranks have called it with
 * the same id. Binds the device that is current in the calling thread. A thread that creates several ranks calls it in a group.
 * comm NULL, nranks < 1, rank outside: ncclInvalidArgument (*comm untouched); two ranks on one GPU: ncclInvalidUsage. */
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank);
ncclResult_t pncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank);

/* The same with options; config may be NULL. With config->blocking 0 it returns ncclInProgress with *comm already set: poll
 * ncclCommGetAsyncError until it reports ncclSuccess. A config without its magic, or a value out of range: ncclInvalidArgument;
 * an unknown netName: ncclInvalidUsage. */
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t* config);
ncclResult_t pncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t* config);

/* The same with nId ids, which share the work of bringing the ranks together. Ranks are dealt to the ids in blocks: with
 * r = nranks mod nId and q = nranks div nId the first r ids own q+1 consecutive ranks each, the others q; the first rank of a
 * block should be the process that made its id. nId < 1 or > nranks: ncclInvalidArgument. */
ncclResult_t ncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId, ncclUniqueId* commIds,
                                      ncclConfig_t* config);
ncclResult_t pncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId, ncclUniqueId* commIds,
                                       ncclConfig_t* config);

/* Creates all ndev ranks of a communicator in this process. comm[ndev] is written; devlist[ndev] names the device of each rank,
 * NULL means 0 to ndev-1. comm NULL, ndev < 1, device out of range: ncclInvalidArgument; device twice: ncclInvalidUsage. */
ncclResult_t ncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist);
ncclResult_t pncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist);

/* Divides a communicator: ranks with equal colour form a new one, ordered by key, then by their old rank. Collective over comm;
 * a rank with colour NCCL_SPLIT_NOCOLOR takes part and gets NULL. config NULL inherits the parent's. On a non-blocking parent it
 * returns ncclSuccess with *newcomm NULL; the child is there, and ready, when the parent's state is ncclSuccess again.
 * newcomm NULL: ncclInvalidArgument. */
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config);
ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config);

/* A new communicator without the ranks of excludeRanksList[excludeRanksCount] (their ranks in comm). Called by the surviving
 * ranks only; they keep their order. The list may be reordered. shrinkFlags is one of NCCL_SHRINK_*. The parent is still to be
 * destroyed or aborted. List NULL, count < 1, the caller in the list: ncclInvalidArgument. */
ncclResult_t ncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount, ncclComm_t* newcomm,
                            ncclConfig_t* config, int shrinkFlags);
ncclResult_t pncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount, ncclComm_t* newcomm,
                             ncclConfig_t* config, int shrinkFlags);

/* ---- Communicators: end ------------------------------------------------------------------------------------------------- */

/* Completes all work issued so far; afterwards only queries, ncclCommDestroy and ncclCommAbort are meant. CUDA graphs
 * that captured the communicator are not waited for (NCCL waits). NULL: ncclSuccess; twice or after ncclCommRevoke: ncclInvalidArgument. */
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t pncclCommFinalize(ncclComm_t comm);

/* Frees the communicator, finalizing first if that was not done. All ranks of a machine should call it. NULL: ncclSuccess. */
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t pncclCommDestroy(ncclComm_t comm);

/* Stops all work in flight and frees the communicator, in any state, without waiting for peers. From any thread, also while the
 * owner is blocked in a call on it. NULL: ncclSuccess. */
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t pncclCommAbort(ncclComm_t comm);

/* Stops all work in flight but keeps the communicator for ncclCommSplit, ncclCommShrink, ncclCommDestroy and ncclCommAbort; its
 * collectives return ncclInvalidUsage from then on. revokeFlags not NCCL_REVOKE_DEFAULT, or a second call: ncclInvalidArgument;
 * NULL: ncclSuccess. */
ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags);
ncclResult_t pncclCommRevoke(ncclComm_t comm, int revokeFlags);

/* ---- Communicators: queries --------------------------------------------------------------------------------------------- */

/* The communicator's state: ncclSuccess, ncclInProgress while a non-blocking call goes on, or the error that ended it. From any
 * thread. NULLs: ncclInvalidArgument. */
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError);
ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError);

/* Number of ranks. NULLs, or a communicator that is not ready: ncclInvalidArgument (the next two likewise). */
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count);
ncclResult_t pncclCommCount(const ncclComm_t comm, int* count);

/* Number of the device that this rank computes with. */
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device);
ncclResult_t pncclCommCuDevice(const ncclComm_t comm, int* device);

/* This rank, 0 to n-1. */
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank);
ncclResult_t pncclCommUserRank(const ncclComm_t comm, int* rank);

/* ---- Memory and registration -------------------------------------------------------------------------------------------- */

/* Memory on the calling thread's device that peers can map and that suits registration; at least `size` bytes, not zeroed.
 * size 0: ncclSuccess and a NULL pointer; ptr NULL: ncclUnhandledCudaError. */
ncclResult_t ncclMemAlloc(void** ptr, size_t size);
ncclResult_t pncclMemAlloc(void** ptr, size_t size);

/* Frees memory of ncclMemAlloc. NULL: ncclSuccess; any other pointer: ncclUnhandledCudaError. */
ncclResult_t ncclMemFree(void* ptr);
ncclResult_t pncclMemFree(void* ptr);

/* Tells the library that [buff, buff+size) bytes will be used often, so that it may avoid copies. Local to the rank, counted;
 * *handle may be NULL on success. comm NULL: ncclInvalidArgument; buff NULL: ncclSuccess. */
ncclResult_t ncclCommRegister(const ncclComm_t comm, void* buff, size_t size, void** handle);
ncclResult_t pncclCommRegister(const ncclComm_t comm, void* buff, size_t size, void** handle);

/* Takes one ncclCommRegister back; do so before freeing the memory. NULL: ncclSuccess; unknown handle: ncclInvalidUsage. */
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle);
ncclResult_t pncclCommDeregister(const ncclComm_t comm, void* handle);

/* Registers [buff, buff+size) bytes as a window that the ranks map from each other. Collective over comm, in the same order;
 * winFlags is one of NCCL_WIN_*. On a non-blocking communicator *win is written when its state is ncclSuccess again. buff NULL
 * or size 0: ncclSuccess, *win untouched; not aligned to NCCL_WIN_REQUIRED_ALIGNMENT: ncclInvalidArgument, *win NULL; memory that
 * cannot be shared: ncclUnhandledCudaError, *win NULL. */
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win, int winFlags);
ncclResult_t pncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win, int winFlags);

/* Ends a window. Every rank does so before freeing its memory. NULL: ncclSuccess. */
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win);
ncclResult_t pncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win);

/* ---- Created reduction operators ---------------------------------------------------------------------------------------- */

/* An operator that sums scalar_i * x_i, where every rank i brings its own scalar of type `datatype`, read as `residence` says.
 * Valid for this communicator and datatype alone. comm NULL: ncclInvalidArgument; datatype unknown: ncclInternalError. */
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype, ncclScalarResidence_t residence,
                                      ncclComm_t comm);
ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype, ncclScalarResidence_t residence,
                                       ncclComm_t comm);

/* Ends a created operator; operations issued with it before are not affected. Anything else: ncclInvalidArgument. */
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm);
ncclResult_t pncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm);

/* ---- Collectives -------------------------------------------------------------------------------------------------------- *
 * All ranks call the same collectives in the same order with the same count, datatype, op and root. Calls return once the work is
 * queued in `stream` (or, in a group, noted); it runs after everything queued there before. On a host device see tutti.h.
 * count 0 succeeds and does nothing. Apart from the in-place form, sendbuff and recvbuff must not overlap.
 * Errors: comm NULL or not ready, root outside 0 to n-1, unknown datatype or op: ncclInvalidArgument; comm revoked:
 * ncclInvalidUsage. */

/* recvbuff[count] on `root` = reduction of every rank's sendbuff[count]; elsewhere recvbuff is not used.
 * In place: sendbuff == recvbuff on root. */
ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, int root,
                         ncclComm_t comm, cudaStream_t stream);

/* buff[count] of `root` is copied to buff of every rank; ncclBroadcast in place on every rank. */
ncclResult_t ncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream);

/* sendbuff[count] of `root` is copied to recvbuff[count] of every rank; elsewhere sendbuff is not used.
 * In place: sendbuff == recvbuff on root. */
ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t pncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                            ncclComm_t comm, cudaStream_t stream);

/* recvbuff[count] on every rank = reduction of every rank's sendbuff[count]; all ranks get the same bits.
 * In place: sendbuff == recvbuff. */
ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                            ncclComm_t comm, cudaStream_t stream);

/* sendbuff[n*recvcount] is reduced over the ranks; recvbuff[recvcount] of rank i = elements from i*recvcount on.
 * In place: recvbuff == sendbuff + rank*recvcount. */
ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype, ncclRedOp_t op,
                                ncclComm_t comm, cudaStream_t stream);

/* recvbuff[n*sendcount] on every rank = sendbuff[sendcount] of rank 0, 1, ... n-1.
 * In place: sendbuff == recvbuff + rank*sendcount. */
ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t pncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype, ncclComm_t comm,
                            cudaStream_t stream);

/* sendbuff[n*count], recvbuff[n*count]: the i-th count elements go to rank i; those from rank i arrive at i*count.
 * There is no in-place form. */
ncclResult_t ncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
                          cudaStream_t stream);
ncclResult_t pncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
                           cudaStream_t stream);

/* recvbuff[n*count] on `root` = sendbuff[count] of rank 0, 1, ... n-1; elsewhere recvbuff is not used.
 * In place: sendbuff == recvbuff + root*count on root. */
ncclResult_t ncclGather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                        cudaStream_t stream);
ncclResult_t pncclGather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                         cudaStream_t stream);

/* recvbuff[count] of rank i = elements of root's sendbuff[n*count] from i*count on; elsewhere sendbuff is not used.
 * In place: recvbuff == sendbuff + root*count on root. */
ncclResult_t ncclScatter(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                         cudaStream_t stream);
ncclResult_t pncclScatter(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                          ncclComm_t comm, cudaStream_t stream);

/* ---- Point to point ----------------------------------------------------------------------------------------------------- *
 * A send meets the peer's receive of the same position in their common order; counts and datatypes agree. A lone call may block
 * until the peer issues its half, so calls that depend on each other (an exchange) belong in one group. To oneself: only in a
 * group with the matching half, otherwise ncclInvalidUsage. peer outside 0 to n-1: ncclInvalidArgument. */

/* Sends sendbuff[count] to rank `peer`. */
ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t pncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                       cudaStream_t stream);

/* Receives recvbuff[count] from rank `peer`. */
ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, cudaStream_t stream);

/* ---- Groups ------------------------------------------------------------------------------------------------------------- *
 * Calls between the outermost start and end of a thread are checked at once and carried out together at the end. Groups nest; a
 * thread that drives several ranks needs one. If a call in the group failed, the end returns that error and carries nothing
 * out. */

ncclResult_t ncclGroupStart(void);
ncclResult_t pncclGroupStart(void);

/* Without a start: ncclInvalidUsage. With a non-blocking communicator in the group: ncclInProgress. */
ncclResult_t ncclGroupEnd(void);
ncclResult_t pncclGroupEnd(void);

/* Ends the group without carrying it out and writes the estimated time of its collectives; simInfo NULL acts as ncclGroupEnd.
 * A struct not made by its initializer: ncclInvalidArgument; without a start: ncclInvalidUsage. */
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t* simInfo);
ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t* simInfo);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
