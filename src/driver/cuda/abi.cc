#include "driver/cuda/abi.h"

namespace tutti::driver::cuda {

const char* listedName(Error error) {
  switch (error) {
    case Error::Success: return "CUDA_SUCCESS";
    case Error::InvalidValue: return "CUDA_ERROR_INVALID_VALUE";
    case Error::OutOfMemory: return "CUDA_ERROR_OUT_OF_MEMORY";
    case Error::NotInitialized: return "CUDA_ERROR_NOT_INITIALIZED";
    case Error::Deinitialized: return "CUDA_ERROR_DEINITIALIZED";
    case Error::StubLibrary: return "CUDA_ERROR_STUB_LIBRARY";
    case Error::NoDevice: return "CUDA_ERROR_NO_DEVICE";
    case Error::InvalidDevice: return "CUDA_ERROR_INVALID_DEVICE";
    case Error::InvalidContext: return "CUDA_ERROR_INVALID_CONTEXT";
    case Error::MapFailed: return "CUDA_ERROR_MAP_FAILED";
    case Error::AlreadyMapped: return "CUDA_ERROR_ALREADY_MAPPED";
    case Error::NotMapped: return "CUDA_ERROR_NOT_MAPPED";
    case Error::PeerAccessUnsupported: return "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED";
    case Error::OperatingSystem: return "CUDA_ERROR_OPERATING_SYSTEM";
    case Error::InvalidHandle: return "CUDA_ERROR_INVALID_HANDLE";
    case Error::IllegalState: return "CUDA_ERROR_ILLEGAL_STATE";
    case Error::NotFound: return "CUDA_ERROR_NOT_FOUND";
    case Error::NotReady: return "CUDA_ERROR_NOT_READY";
    case Error::IllegalAddress: return "CUDA_ERROR_ILLEGAL_ADDRESS";
    case Error::PeerAccessAlreadyEnabled: return "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED";
    case Error::PeerAccessNotEnabled: return "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED";
    case Error::HostMemoryAlreadyRegistered: return "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED";
    case Error::HostMemoryNotRegistered: return "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED";
    case Error::LaunchFailed: return "CUDA_ERROR_LAUNCH_FAILED";
    case Error::NotPermitted: return "CUDA_ERROR_NOT_PERMITTED";
    case Error::NotSupported: return "CUDA_ERROR_NOT_SUPPORTED";
    case Error::SystemNotReady: return "CUDA_ERROR_SYSTEM_NOT_READY";
    case Error::StreamCaptureUnsupported: return "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED";
    case Error::StreamCaptureInvalidated: return "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED";
    case Error::StreamCaptureUnjoined: return "CUDA_ERROR_STREAM_CAPTURE_UNJOINED";
    case Error::StreamCaptureIsolation: return "CUDA_ERROR_STREAM_CAPTURE_ISOLATION";
    case Error::CapturedEvent: return "CUDA_ERROR_CAPTURED_EVENT";
    case Error::Unknown: return "CUDA_ERROR_UNKNOWN";
  }
  return nullptr;
}

}  // namespace tutti::driver::cuda
