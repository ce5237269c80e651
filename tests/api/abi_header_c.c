/* The public headers as a C program sees them: they compile without a warning, hold their sizes, and can be initialized.
 * Built as C99 and C11, each with CUDA's headers (where there are any) and without them. */
#include <tutti.h>

#include <nccl_device.h>

#include <string.h>

/* Sizes of a C compiler's view; the C++ view is held to the whole table by abi_layout_test.cc. */
#define CHECK_SIZE(name, type, bytes) typedef char check_##name[sizeof(type) == (bytes) ? 1 : -1]
CHECK_SIZE(uniqueId, ncclUniqueId, 128);
CHECK_SIZE(config, ncclConfig_t, 80);
CHECK_SIZE(simInfo, ncclSimInfo_t, 24);
CHECK_SIZE(result, ncclResult_t, 4);
CHECK_SIZE(dataType, ncclDataType_t, 4);
CHECK_SIZE(redOp, ncclRedOp_t, 4);
CHECK_SIZE(residence, ncclScalarResidence_t, 4);
CHECK_SIZE(team, ncclTeam_t, 12);
CHECK_SIZE(devCommRequirements, ncclDevCommRequirements_t, 56);
CHECK_SIZE(devResourceRequirements, ncclDevResourceRequirements_t, 56);
CHECK_SIZE(teamRequirements, ncclTeamRequirements_t, 32);
CHECK_SIZE(window, struct ncclWindow_vidmem, 72);
CHECK_SIZE(devComm, ncclDevComm_t, 200);
CHECK_SIZE(windowTable, struct ncclDevCommWindowTable, 776);
CHECK_SIZE(maxRedOp, char[ncclMaxRedOp == 0x7fffffff ? 3 : 1], 3);

/* Calls are compiled, not made: sizeof does not evaluate. */
static size_t compileCalls(ncclComm_t comm, cudaStream_t stream, void* buffer) {
  ncclUniqueId id;
  char text[8];
  size_t needed = 0;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  memset(&id, 0, sizeof id);
  return sizeof(ncclAllReduce(buffer, buffer, (size_t)1, ncclFloat, ncclSum, comm, stream)) +
         sizeof(pncclCommInitRankConfig(&comm, 1, id, 0, &config)) + sizeof(pncclTeamWorld(comm).nRanks) +
         sizeof(tuttiStreamCreate(&stream)) +
         sizeof(tuttiExplain(comm, "all_reduce", (size_t)1, ncclFloat, ncclSum, 0, text, sizeof text, &needed)) + needed;
}

int main(void) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclSimInfo_t simInfo = NCCL_SIM_INFO_INITIALIZER;
  const int isInitialized = config.size == sizeof config && config.magic == 0xcafebeefu &&
                            config.version == NCCL_VERSION_CODE && config.blocking == NCCL_CONFIG_UNDEF_INT &&
                            config.netName == NULL && config.nvlinkCentricSched == NCCL_CONFIG_UNDEF_INT &&
                            simInfo.magic == 0x74685283u && simInfo.estimatedTime < 0.0f;
  return isInitialized && compileCalls(NCCL_COMM_NULL, NULL, NULL) == 5 * sizeof(int) ? 0 : 1;
}
