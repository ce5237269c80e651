// Our declarations of the driver's interface beside the driver's own header.
#include "driver/cuda/abi.h"

#include <cuda.h>
#include <cudaTypedefs.h>
#include <gtest/gtest.h>

#include <type_traits>

#include "driver/cuda/api.h"

namespace tutti::driver::cuda::abi_test {
namespace {

/// Whether a value of one type is passed like a value of the other: same size, and both a pointer (to things of one size), a number or a
/// struct.
template <class A, class B>
constexpr bool samePassing() {
  if constexpr (std::is_pointer_v<A> != std::is_pointer_v<B>) {
    return false;
  } else if constexpr (std::is_pointer_v<A>) {
    using To = std::remove_cv_t<std::remove_pointer_t<A>>;
    using From = std::remove_cv_t<std::remove_pointer_t<B>>;
    constexpr bool opaqueTo = std::is_void_v<To> || std::is_function_v<To>;
    if constexpr (std::is_function_v<To> && std::is_function_v<From>) {
      return std::is_same_v<To, From>;
    } else if constexpr (opaqueTo || std::is_void_v<From>) {
      return opaqueTo == std::is_void_v<From>;
    } else if constexpr (std::is_class_v<To> && std::is_class_v<From>) {
      if constexpr (
          requires { sizeof(To); } && requires { sizeof(From); })
        return sizeof(To) == sizeof(From) && alignof(To) == alignof(From);
      return std::is_same_v<To, From>;
    } else {
      return sizeof(To) == sizeof(From) && std::is_pointer_v<To> == std::is_pointer_v<From>;
    }
  } else {
    return sizeof(A) == sizeof(B) && std::is_class_v<A> == std::is_class_v<B>;
  }
}

template <class A, class B>
struct SameFunction : std::false_type {};
template <class RA, class... A, class RB, class... B>
struct SameFunction<RA (*)(A...), RB (*)(B...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(A) != sizeof...(B))
      return false;
    else
      return samePassing<RA, RB>() && (samePassing<A, B>() && ...);
  }();
};

#define TUTTI_CUDA_CALL(name, symbol, version, parameters, arguments) \
  static_assert(SameFunction<Error(*) parameters, PFN_##symbol##_v##version>::value, #symbol);
#include "driver/cuda/calls.def"
#undef TUTTI_CUDA_CALL

static_assert(!SameFunction<Error (*)(int32_t*, int32_t), PFN_cuDeviceGetCount_v2000>::value, "the comparison can fail");
static_assert(!SameFunction<Error (*)(int64_t*), PFN_cuDeviceGetCount_v2000>::value, "the comparison can fail");

template <class Ours>
constexpr bool equals(Ours ours, int64_t theirs) {
  return static_cast<int64_t>(ours) == theirs;
}

static_assert(equals(Error::InvalidValue, CUDA_ERROR_INVALID_VALUE) && equals(Error::OutOfMemory, CUDA_ERROR_OUT_OF_MEMORY));
static_assert(equals(Error::NotInitialized, CUDA_ERROR_NOT_INITIALIZED) && equals(Error::Deinitialized, CUDA_ERROR_DEINITIALIZED));
static_assert(equals(Error::StubLibrary, CUDA_ERROR_STUB_LIBRARY) && equals(Error::NoDevice, CUDA_ERROR_NO_DEVICE));
static_assert(equals(Error::InvalidDevice, CUDA_ERROR_INVALID_DEVICE) && equals(Error::InvalidContext, CUDA_ERROR_INVALID_CONTEXT));
static_assert(equals(Error::MapFailed, CUDA_ERROR_MAP_FAILED) && equals(Error::AlreadyMapped, CUDA_ERROR_ALREADY_MAPPED));
static_assert(equals(Error::NotMapped, CUDA_ERROR_NOT_MAPPED) && equals(Error::PeerAccessUnsupported, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED));
static_assert(equals(Error::OperatingSystem, CUDA_ERROR_OPERATING_SYSTEM) && equals(Error::InvalidHandle, CUDA_ERROR_INVALID_HANDLE));
static_assert(equals(Error::IllegalState, CUDA_ERROR_ILLEGAL_STATE) && equals(Error::NotFound, CUDA_ERROR_NOT_FOUND));
static_assert(equals(Error::NotReady, CUDA_ERROR_NOT_READY) && equals(Error::IllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS));
static_assert(equals(Error::PeerAccessAlreadyEnabled, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED));
static_assert(equals(Error::PeerAccessNotEnabled, CUDA_ERROR_PEER_ACCESS_NOT_ENABLED));
static_assert(equals(Error::HostMemoryAlreadyRegistered, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED));
static_assert(equals(Error::HostMemoryNotRegistered, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED));
static_assert(equals(Error::LaunchFailed, CUDA_ERROR_LAUNCH_FAILED) && equals(Error::NotPermitted, CUDA_ERROR_NOT_PERMITTED));
static_assert(equals(Error::NotSupported, CUDA_ERROR_NOT_SUPPORTED) && equals(Error::Unknown, CUDA_ERROR_UNKNOWN));
static_assert(equals(Error::SystemNotReady, CUDA_ERROR_SYSTEM_NOT_READY));
static_assert(equals(Error::StreamCaptureUnsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
static_assert(equals(Error::StreamCaptureInvalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
static_assert(equals(Error::StreamCaptureUnjoined, CUDA_ERROR_STREAM_CAPTURE_UNJOINED));
static_assert(equals(Error::StreamCaptureIsolation, CUDA_ERROR_STREAM_CAPTURE_ISOLATION));
static_assert(equals(Error::CapturedEvent, CUDA_ERROR_CAPTURED_EVENT));

static_assert(equals(Attribute::MultiprocessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
static_assert(equals(Attribute::PciBusId, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) &&
              equals(Attribute::PciDeviceId, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID));
static_assert(equals(Attribute::UnifiedAddressing, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING));
static_assert(equals(Attribute::PciDomainId, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID));
static_assert(equals(Attribute::ComputeCapabilityMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
static_assert(equals(Attribute::ComputeCapabilityMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
static_assert(equals(Attribute::HostNativeAtomics, CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED));
static_assert(equals(Attribute::HostPointerForRegistered, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM));
static_assert(equals(Attribute::HostRegister, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED));
static_assert(equals(Attribute::VirtualMemory, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED));
static_assert(equals(Attribute::PosixFileDescriptor, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED));
static_assert(equals(Attribute::RdmaWithVirtualMemory, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED));
static_assert(equals(Attribute::Rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED));
static_assert(equals(StreamOpKind::Wait, CU_STREAM_MEM_OP_WAIT_VALUE_32));
static_assert(equals(Attribute::WideStreamOps, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS));
static_assert(equals(StreamOpKind::Write, CU_STREAM_MEM_OP_WRITE_VALUE_32) &&
              equals(StreamOpKind::WriteWide, CU_STREAM_MEM_OP_WRITE_VALUE_64));
static_assert(equals(kWaitEqual, CU_STREAM_WAIT_VALUE_EQ));
static_assert(sizeof(StreamOp) == sizeof(CUstreamBatchMemOpParams));
static_assert(offsetof(StreamOp, address) == offsetof(CUstreamBatchMemOpParams, waitValue.address));
static_assert(offsetof(StreamOp, value) == offsetof(CUstreamBatchMemOpParams, writeValue.value));
static_assert(offsetof(StreamOp, value) == offsetof(CUstreamBatchMemOpParams, waitValue.value));
static_assert(offsetof(StreamOp, flags) == offsetof(CUstreamBatchMemOpParams, waitValue.flags));
static_assert(offsetof(StreamOp, flags) == offsetof(CUstreamBatchMemOpParams, writeValue.flags));
#if CUDA_VERSION >= 12030
static_assert(equals(Attribute::FabricHandle, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED));
static_assert(equals(HandleType::Fabric, CU_MEM_HANDLE_TYPE_FABRIC) && sizeof(FabricHandle) == sizeof(CUmemFabricHandle));
static_assert(equals(LocationType::OnHost, CU_MEM_LOCATION_TYPE_HOST) && equals(LocationType::OnHostNuma, CU_MEM_LOCATION_TYPE_HOST_NUMA));
static_assert(equals(Attribute::HostNumaId, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID));
#endif

static_assert(equals(PeerAttribute::PerformanceRank, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK));
static_assert(equals(PeerAttribute::AccessSupported, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED));
static_assert(equals(PeerAttribute::NativeAtomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED));
static_assert(equals(PointerAttribute::MemoryType, CU_POINTER_ATTRIBUTE_MEMORY_TYPE));
static_assert(equals(PointerAttribute::DevicePointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER));
static_assert(equals(PointerAttribute::BufferId, CU_POINTER_ATTRIBUTE_BUFFER_ID));
static_assert(equals(PointerAttribute::IsManaged, CU_POINTER_ATTRIBUTE_IS_MANAGED));
static_assert(equals(PointerAttribute::DeviceOrdinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL));
static_assert(equals(PointerAttribute::IsLegacyIpcCapable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE));
static_assert(equals(PointerAttribute::RangeStart, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR));
static_assert(equals(PointerAttribute::RangeSize, CU_POINTER_ATTRIBUTE_RANGE_SIZE));
static_assert(equals(PointerAttribute::Mapped, CU_POINTER_ATTRIBUTE_MAPPED));
static_assert(equals(PointerAttribute::AllowedHandleTypes, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES));
static_assert(equals(MemoryType::OnHost, CU_MEMORYTYPE_HOST) && equals(MemoryType::OnDevice, CU_MEMORYTYPE_DEVICE));
static_assert(equals(MemoryType::OfArray, CU_MEMORYTYPE_ARRAY) && equals(MemoryType::Unified, CU_MEMORYTYPE_UNIFIED));

static_assert(equals(LocationType::OnDevice, CU_MEM_LOCATION_TYPE_DEVICE));
static_assert(equals(AllocationType::Pinned, CU_MEM_ALLOCATION_TYPE_PINNED));
static_assert(equals(Granularity::Minimum, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
static_assert(equals(Granularity::Recommended, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
static_assert(equals(Access::None, CU_MEM_ACCESS_FLAGS_PROT_NONE) && equals(Access::Read, CU_MEM_ACCESS_FLAGS_PROT_READ));
static_assert(equals(Access::ReadWrite, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
static_assert(equals(HandleType::PosixFd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));

static_assert(sizeof(Location) == sizeof(CUmemLocation) && offsetof(Location, id) == offsetof(CUmemLocation, id));
static_assert(sizeof(AccessDesc) == sizeof(CUmemAccessDesc) && offsetof(AccessDesc, flags) == offsetof(CUmemAccessDesc, flags));
static_assert(sizeof(AllocationProp) == sizeof(CUmemAllocationProp));
static_assert(offsetof(AllocationProp, requested) == offsetof(CUmemAllocationProp, requestedHandleTypes));
static_assert(offsetof(AllocationProp, location) == offsetof(CUmemAllocationProp, location));
static_assert(offsetof(AllocationProp, win32) == offsetof(CUmemAllocationProp, win32HandleMetaData));
static_assert(offsetof(AllocationProp, flags) == offsetof(CUmemAllocationProp, allocFlags));
static_assert(offsetof(AllocationProp, flags.rdma) == offsetof(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable));
static_assert(offsetof(AllocationProp, flags.usage) == offsetof(CUmemAllocationProp, allocFlags.usage));
static_assert(sizeof(PlaneCopy) == sizeof(CUDA_MEMCPY2D) && offsetof(PlaneCopy, to) == offsetof(CUDA_MEMCPY2D, dstXInBytes));
static_assert(offsetof(PlaneCopy, width) == offsetof(CUDA_MEMCPY2D, WidthInBytes) &&
              offsetof(PlaneCopy, height) == offsetof(CUDA_MEMCPY2D, Height));
static_assert(offsetof(PlaneSide, y) == offsetof(CUDA_MEMCPY2D, srcY) &&
              offsetof(PlaneSide, type) == offsetof(CUDA_MEMCPY2D, srcMemoryType));
static_assert(offsetof(PlaneSide, host) == offsetof(CUDA_MEMCPY2D, srcHost) &&
              offsetof(PlaneSide, device) == offsetof(CUDA_MEMCPY2D, srcDevice));
static_assert(offsetof(PlaneSide, array) == offsetof(CUDA_MEMCPY2D, srcArray) &&
              offsetof(PlaneSide, pitch) == offsetof(CUDA_MEMCPY2D, srcPitch));
static_assert(sizeof(Uuid) == sizeof(CUuuid) && sizeof(IpcHandle) == sizeof(CUipcMemHandle));

static_assert(equals(CaptureStatus::Active, CU_STREAM_CAPTURE_STATUS_ACTIVE));
static_assert(equals(CaptureStatus::Invalidated, CU_STREAM_CAPTURE_STATUS_INVALIDATED));
static_assert(equals(CaptureMode::ThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
static_assert(equals(CaptureMode::Relaxed, CU_STREAM_CAPTURE_MODE_RELAXED));
static_assert(kHostRegisterPortable == CU_MEMHOSTREGISTER_PORTABLE && kHostRegisterDeviceMap == CU_MEMHOSTREGISTER_DEVICEMAP);
static_assert(kIpcLazyPeerAccess == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS && kStreamNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(kEventDisableTiming == CU_EVENT_DISABLE_TIMING);
static_assert(kAddCaptureDependencies == CU_STREAM_ADD_CAPTURE_DEPENDENCIES);
static_assert(kUserObjectNoDestructorSync == CU_USER_OBJECT_NO_DESTRUCTOR_SYNC && kUserObjectMove == CU_GRAPH_USER_OBJECT_MOVE);
static_assert(std::is_same_v<Graph, CUgraph> && std::is_same_v<GraphNode, CUgraphNode> && std::is_same_v<UserObject, CUuserObject>);
static_assert(std::is_same_v<Stream, CUstream> && std::is_same_v<Event, CUevent> && std::is_same_v<Context, CUcontext>);

TEST(Abi, StreamNumbersAreThoseOfTheHeader) {
  EXPECT_EQ(reinterpret_cast<uintptr_t>(CU_STREAM_LEGACY), kLegacyStream);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(CU_STREAM_PER_THREAD), kPerThreadStream);
}

}  // namespace
}  // namespace tutti::driver::cuda::abi_test
