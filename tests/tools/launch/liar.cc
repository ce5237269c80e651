// A library to be preloaded: on rank 1 the all-reduces of floats come out wrong in one bit. What the benchmark's processes tell each other
// goes through all-reduces of other types, and is left alone.
#include <cstdlib>
#include <cstring>

#include "nccl.h"

extern "C" __attribute__((visibility("default"))) ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                                                             ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                                                             cudaStream_t stream) {
  const ncclResult_t result = pncclAllReduce(sendbuff, recvbuff, count, datatype, op, comm, stream);
  const char* rank = std::getenv("RANK");
  if (result == ncclSuccess && datatype == ncclFloat && count > 0 && rank != nullptr && std::strcmp(rank, "1") == 0) {
    static_cast<unsigned char*>(recvbuff)[4 * (count - 1)] ^= 1;
  }
  return result;
}
