// The public headers as a C++11 program sees them, with CUDA's headers (where there are any) and without.
#include <nccl_device.h>
#include <tutti.h>

#include <type_traits>

static_assert(std::is_same<cudaStream_t, struct CUstream_st*>::value, "not CUDA's own handle");
static_assert(std::is_same<decltype(ncclGroupStart()), ncclResult_t>::value, "");
static_assert(std::is_same<decltype(pncclTeamWorld(NCCL_COMM_NULL)), ncclTeam_t>::value, "");
static_assert(std::is_same<decltype(ncclDevCommWindowTable::Entry::window), ncclWindow_t>::value, "");
static_assert(NCCL_VERSION_CODE == NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH), "");
static_assert(TUTTI_VERSION_CODE == 100, "");

int main() {
  const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  const ncclSimInfo_t simInfo = NCCL_SIM_INFO_INITIALIZER;
  return config.size == sizeof(config) && simInfo.size == sizeof(simInfo) ? 0 : 1;
}
