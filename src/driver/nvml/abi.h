// Facts of NVML's binary interface, as far as we use it. Its header is not part of the CUDA toolkit here.
//
// Plain values; any thread.
// 1. Sizes, offsets and values equal those of nvml.h; tests/driver/nvml/abi_test.cc compares them wherever that header is found.
// 2. An Error may hold any number: newer libraries have more of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

struct nvmlDevice_st;  // NOLINT(readability-identifier-naming)

namespace tutti::driver::nvml {

using Handle = nvmlDevice_st*;

enum class Error : int32_t {
  Success = 0,
  Uninitialized = 1,
  InvalidArgument = 2,
  NotSupported = 3,
  NoPermission = 4,
  NotFound = 6,
  DriverNotLoaded = 9,
  FunctionNotFound = 13,
  VersionMismatch = 18,
  ArgumentVersionMismatch = 25,
  Unknown = 999,
};

inline constexpr uint32_t kMostLinks = 18;
enum class Switched : int32_t { Off = 0, On = 1 };
enum class RemoteType : int32_t { Gpu = 0, IbmNpu = 1, Switch = 2, Unknown = 255 };
enum class PeerCapability : int32_t { Read = 0, Write = 1, NvLink = 2, Atomics = 3, Pci = 4 };
enum class PeerStatus : int32_t {
  Ok = 0,
  ChipsetNotSupported = 1,
  GpuNotSupported = 2,
  TopologyNotSupported = 3,
  DisabledByRegistry = 4,
  NotSupported = 5,
  Unknown = 6,
};
enum class FabricState : uint8_t { NotSupported = 0, NotStarted = 1, InProgress = 2, Completed = 3 };

struct PciInfo {
  std::array<char, 16> legacyBusId{};
  uint32_t domain = 0;
  uint32_t bus = 0;
  uint32_t device = 0;
  uint32_t pciDeviceId = 0;
  uint32_t subsystemId = 0;
  std::array<char, 32> busId{};
};

/// What deviceGetFieldValues answers: `field` and `scope` are the question.
enum class Field : uint32_t { C2cLinks = 170, C2cLinkStatus = 171, C2cLinkMBps = 172 };
struct FieldValue {
  Field field = Field::C2cLinks;
  uint32_t scope = 0;  ///< the link's number
  int64_t timestamp = 0;
  int64_t latencyUs = 0;
  uint32_t valueType = 0;
  Error error = Error::Success;
  uint64_t value = 0;  ///< a union; its first four bytes are what an unsigned number has
};

/// Version 2 of it: the oldest that says how healthy the fabric is, and known to every library that has one.
struct FabricInfo {
  uint32_t version = 0;
  std::array<uint8_t, 16> cluster{};
  Error status = Error::Success;
  uint32_t clique = 0;
  FabricState state = FabricState::NotSupported;
  uint32_t healthMask = 0;
};
constexpr uint32_t kFabricInfoVersion = sizeof(FabricInfo) | 2u << 24;

static_assert(sizeof(PciInfo) == 68 && offsetof(PciInfo, busId) == 36);
static_assert(sizeof(FieldValue) == 40 && offsetof(FieldValue, value) == 32);
static_assert(sizeof(FabricInfo) == 36 && offsetof(FabricInfo, state) == 28);

}  // namespace tutti::driver::nvml
