// Facts of the CUDA driver's binary interface, as far as we use it: types, numbers, layouts. No CUDA header is needed.
//
// Plain values; any thread.
// 1. Sizes, offsets and values equal those of cuda.h; tests/driver/cuda/abi_test.cc compares them wherever that header is present.
// 2. An Error may hold any number: drivers newer than this file have more of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

// The opaque types of the runtime's handles, so that a cudaStream_t is a Stream without a cast.
struct CUctx_st;     // NOLINT(readability-identifier-naming)
struct CUstream_st;  // NOLINT(readability-identifier-naming)
struct CUevent_st;   // NOLINT(readability-identifier-naming)
struct CUgraph_st;   // NOLINT(readability-identifier-naming)
struct CUgraphNode_st;   // NOLINT(readability-identifier-naming)
struct CUuserObject_st;  // NOLINT(readability-identifier-naming)

namespace tutti::driver::cuda {

using Device = int32_t;
using DevicePtr = uint64_t;  ///< an address that devices understand; 0 is none
using MemHandle = uint64_t;  ///< physical memory
using Context = CUctx_st*;
using Stream = CUstream_st*;
using Event = CUevent_st*;
using Graph = CUgraph_st*;
using GraphNode = CUgraphNode_st*;
using UserObject = CUuserObject_st*;
using HostFunction = void (*)(void*);

inline constexpr uintptr_t kLegacyStream = 1;  ///< the stream that NULL means
inline constexpr uintptr_t kPerThreadStream = 2;

enum class Error : int32_t {
  Success = 0,
  InvalidValue = 1,
  OutOfMemory = 2,
  NotInitialized = 3,
  Deinitialized = 4,
  StubLibrary = 34,
  NoDevice = 100,
  InvalidDevice = 101,
  InvalidContext = 201,
  MapFailed = 205,
  AlreadyMapped = 208,
  NotMapped = 211,
  PeerAccessUnsupported = 217,
  OperatingSystem = 304,
  InvalidHandle = 400,
  IllegalState = 401,
  NotFound = 500,
  NotReady = 600,
  IllegalAddress = 700,
  PeerAccessAlreadyEnabled = 704,
  PeerAccessNotEnabled = 705,
  HostMemoryAlreadyRegistered = 712,
  HostMemoryNotRegistered = 713,
  LaunchFailed = 719,
  NotPermitted = 800,
  NotSupported = 801,
  SystemNotReady = 802,
  StreamCaptureUnsupported = 900,
  StreamCaptureInvalidated = 901,
  StreamCaptureUnjoined = 904,
  StreamCaptureIsolation = 905,
  CapturedEvent = 907,
  Unknown = 999,
};

/// "CUDA_ERROR_OUT_OF_MEMORY", or null for a number that is not listed above.
const char* listedName(Error error);

enum class Attribute : int32_t {
  MultiprocessorCount = 16,
  PciBusId = 33,
  PciDeviceId = 34,
  UnifiedAddressing = 41,
  PciDomainId = 50,
  ComputeCapabilityMajor = 75,
  ComputeCapabilityMinor = 76,
  HostNativeAtomics = 86,
  HostPointerForRegistered = 91,
  HostRegister = 99,
  VirtualMemory = 102,
  PosixFileDescriptor = 103,
  RdmaWithVirtualMemory = 110,
  Rdma = 116,
  WideStreamOps = 122,
  FabricHandle = 128,
  HostNumaId = 134,
};

enum class PeerAttribute : int32_t { PerformanceRank = 1, AccessSupported = 2, NativeAtomics = 3 };

enum class PointerAttribute : int32_t {
  MemoryType = 2,
  DevicePointer = 3,
  BufferId = 7,
  IsManaged = 8,
  DeviceOrdinal = 9,
  IsLegacyIpcCapable = 10,
  RangeStart = 11,
  RangeSize = 12,
  Mapped = 13,
  AllowedHandleTypes = 14,
};

enum class MemoryType : uint32_t { Unregistered = 0, OnHost = 1, OnDevice = 2, OfArray = 3, Unified = 4 };

enum class LocationType : int32_t { None = 0, OnDevice = 1, OnHost = 2, OnHostNuma = 3 };
enum class AllocationType : int32_t { Invalid = 0, Pinned = 1 };
enum class Granularity : int32_t { Minimum = 0, Recommended = 1 };
enum class Access : int32_t { None = 0, Read = 1, ReadWrite = 3 };

/// Bits: memory is created with all those that it may be exported as.
enum class HandleType : int32_t { None = 0, PosixFd = 1, Fabric = 8, PosixFdAndFabric = 9 };
constexpr bool includes(HandleType types, HandleType one) { return (static_cast<int32_t>(types) & static_cast<int32_t>(one)) != 0; }

struct Location {
  LocationType type = LocationType::None;
  int32_t id = 0;
};

struct AllocationProp {
  AllocationType type = AllocationType::Invalid;
  HandleType requested = HandleType::None;
  Location location;
  void* win32 = nullptr;
  struct {
    uint8_t compression = 0;
    uint8_t rdma = 0;  ///< 1: network cards may address it
    uint16_t usage = 0;
    std::array<uint8_t, 4> reserved{};
  } flags;
};

struct AccessDesc {
  Location location;
  Access flags = Access::None;
};

struct Uuid {
  std::array<uint8_t, 16> bytes{};
  friend bool operator==(const Uuid&, const Uuid&) = default;
};
struct FabricHandle {
  std::array<uint8_t, 64> bytes{};
};
struct IpcHandle {
  std::array<uint8_t, 64> bytes{};
};

/// One side of a copy of rows: `pitch` bytes from the beginning of one to that of the next.
struct PlaneSide {
  size_t x = 0;
  size_t y = 0;
  MemoryType type = MemoryType::Unregistered;
  const void* host = nullptr;
  DevicePtr device = 0;  ///< of types OnDevice and Unified
  void* array = nullptr;
  size_t pitch = 0;
};
struct PlaneCopy {
  PlaneSide from;
  PlaneSide to;
  size_t width = 0;  ///< bytes of a row
  size_t height = 0;
};

/// What a stream does with a word of 32 bits, or of 64, when it comes to it.
enum class StreamOpKind : int32_t { Wait = 1, Write = 2, WriteWide = 5 };
struct StreamOp {
  StreamOpKind kind = StreamOpKind::Write;
  DevicePtr address = 0;
  uint64_t value = 0;
  uint32_t flags = 0;   ///< of a wait: kWaitEqual
  DevicePtr alias = 0;  ///< the driver's own
  uint64_t unused = 0;
};

enum class CaptureStatus : int32_t { None = 0, Active = 1, Invalidated = 2 };
enum class CaptureMode : int32_t { Global = 0, ThreadLocal = 1, Relaxed = 2 };

inline constexpr uint32_t kHostRegisterPortable = 1;
inline constexpr uint32_t kHostRegisterDeviceMap = 2;
inline constexpr uint32_t kIpcLazyPeerAccess = 1;
inline constexpr uint32_t kStreamNonBlocking = 1;
inline constexpr uint32_t kEventDisableTiming = 2;
inline constexpr uint32_t kMostStreamOps = 256;  ///< of a call
inline constexpr uint32_t kWaitEqual = 1;  ///< until the word is the value
inline constexpr uint32_t kAddCaptureDependencies = 0;
inline constexpr uint32_t kUserObjectNoDestructorSync = 1;
inline constexpr uint32_t kUserObjectMove = 1;

static_assert(sizeof(Location) == 8 && sizeof(AccessDesc) == 12 && sizeof(AllocationProp) == 32);
static_assert(offsetof(AllocationProp, location) == 8 && offsetof(AllocationProp, win32) == 16 && offsetof(AllocationProp, flags) == 24);
static_assert(std::is_trivially_copyable_v<AllocationProp> && std::is_trivially_copyable_v<AccessDesc>);
static_assert(sizeof(PlaneSide) == 56 && offsetof(PlaneSide, device) == 32 && sizeof(PlaneCopy) == 128);
static_assert(sizeof(StreamOp) == 48 && offsetof(StreamOp, address) == 8);
static_assert(offsetof(StreamOp, value) == 16 && offsetof(StreamOp, flags) == 24);
static_assert(sizeof(Uuid) == 16 && sizeof(FabricHandle) == 64 && sizeof(IpcHandle) == 64);

}  // namespace tutti::driver::cuda
