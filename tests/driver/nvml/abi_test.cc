// Our declarations of NVML's interface beside its own header.
#include "driver/nvml/abi.h"

#include <gtest/gtest.h>
#include <nvml.h>

namespace tutti::driver::nvml::abi_test {
namespace {

template <class Ours>
constexpr bool equals(Ours ours, int64_t theirs) {
  return static_cast<int64_t>(ours) == theirs;
}

static_assert(equals(Error::Success, NVML_SUCCESS) && equals(Error::Uninitialized, NVML_ERROR_UNINITIALIZED));
static_assert(equals(Error::InvalidArgument, NVML_ERROR_INVALID_ARGUMENT) && equals(Error::NotSupported, NVML_ERROR_NOT_SUPPORTED));
static_assert(equals(Error::NoPermission, NVML_ERROR_NO_PERMISSION) && equals(Error::NotFound, NVML_ERROR_NOT_FOUND));
static_assert(equals(Error::DriverNotLoaded, NVML_ERROR_DRIVER_NOT_LOADED));
static_assert(equals(Error::FunctionNotFound, NVML_ERROR_FUNCTION_NOT_FOUND));
static_assert(equals(Error::VersionMismatch, NVML_ERROR_LIB_RM_VERSION_MISMATCH));
static_assert(equals(Error::ArgumentVersionMismatch, NVML_ERROR_ARGUMENT_VERSION_MISMATCH) && equals(Error::Unknown, NVML_ERROR_UNKNOWN));
static_assert(kMostLinks == NVML_NVLINK_MAX_LINKS);
static_assert(equals(Switched::Off, NVML_FEATURE_DISABLED) && equals(Switched::On, NVML_FEATURE_ENABLED));
static_assert(equals(RemoteType::Gpu, NVML_NVLINK_DEVICE_TYPE_GPU) && equals(RemoteType::IbmNpu, NVML_NVLINK_DEVICE_TYPE_IBMNPU));
static_assert(equals(RemoteType::Switch, NVML_NVLINK_DEVICE_TYPE_SWITCH) && equals(RemoteType::Unknown, NVML_NVLINK_DEVICE_TYPE_UNKNOWN));
static_assert(equals(PeerCapability::Read, NVML_P2P_CAPS_INDEX_READ) && equals(PeerCapability::Write, NVML_P2P_CAPS_INDEX_WRITE));
static_assert(equals(PeerCapability::NvLink, NVML_P2P_CAPS_INDEX_NVLINK) && equals(PeerCapability::Atomics, NVML_P2P_CAPS_INDEX_ATOMICS));
static_assert(equals(PeerCapability::Pci, NVML_P2P_CAPS_INDEX_PCI));
static_assert(equals(PeerStatus::Ok, NVML_P2P_STATUS_OK));
static_assert(equals(PeerStatus::ChipsetNotSupported, NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED));
static_assert(equals(PeerStatus::GpuNotSupported, NVML_P2P_STATUS_GPU_NOT_SUPPORTED));
static_assert(equals(PeerStatus::TopologyNotSupported, NVML_P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED));
static_assert(equals(PeerStatus::DisabledByRegistry, NVML_P2P_STATUS_DISABLED_BY_REGKEY));
static_assert(equals(PeerStatus::NotSupported, NVML_P2P_STATUS_NOT_SUPPORTED) && equals(PeerStatus::Unknown, NVML_P2P_STATUS_UNKNOWN));
static_assert(equals(FabricState::Completed, NVML_GPU_FABRIC_STATE_COMPLETED));
static_assert(equals(FabricState::InProgress, NVML_GPU_FABRIC_STATE_IN_PROGRESS));
static_assert(sizeof(PciInfo) == sizeof(nvmlPciInfo_t) && offsetof(PciInfo, busId) == offsetof(nvmlPciInfo_t, busId));
static_assert(equals(Field::C2cLinks, NVML_FI_DEV_C2C_LINK_COUNT) && equals(Field::C2cLinkStatus, NVML_FI_DEV_C2C_LINK_GET_STATUS));
static_assert(equals(Field::C2cLinkMBps, NVML_FI_DEV_C2C_LINK_GET_MAX_BW));
static_assert(sizeof(FieldValue) == sizeof(nvmlFieldValue_t) && offsetof(FieldValue, value) == offsetof(nvmlFieldValue_t, value));
static_assert(offsetof(FieldValue, error) == offsetof(nvmlFieldValue_t, nvmlReturn));
static_assert(sizeof(FabricInfo) == sizeof(nvmlGpuFabricInfo_v2_t));
static_assert(offsetof(FabricInfo, cluster) == offsetof(nvmlGpuFabricInfo_v2_t, clusterUuid));
static_assert(offsetof(FabricInfo, status) == offsetof(nvmlGpuFabricInfo_v2_t, status));
static_assert(offsetof(FabricInfo, clique) == offsetof(nvmlGpuFabricInfo_v2_t, cliqueId));
static_assert(offsetof(FabricInfo, state) == offsetof(nvmlGpuFabricInfo_v2_t, state));
static_assert(offsetof(FabricInfo, healthMask) == offsetof(nvmlGpuFabricInfo_v2_t, healthMask));

TEST(NvmlAbi, TheVersionOfAStructIsItsSizeToo) { EXPECT_EQ(kFabricInfoVersion, nvmlGpuFabricInfo_v2); }

}  // namespace
}  // namespace tutti::driver::nvml::abi_test
