// Reduction operators of the caller's own.

#include "api/guard.h"

using tutti::Code;
using tutti::Status;
using tutti::api::useComm;
using tutti::comm::Communicator;

extern "C" ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype, ncclScalarResidence_t residence,
                                                  ncclComm_t comm) {
  return useComm("ncclRedOpCreatePreMulSum", comm, [&](Communicator& c) -> Status {
    TUTTI_TRY(c.usable());
    if (op == nullptr) return tutti::error(Code::InvalidArgument, "op is NULL: expected where to write the operator");
    if (scalar == nullptr) return tutti::error(Code::InvalidArgument, "scalar is NULL: expected one element of the datatype");
    if (datatype < 0 || datatype >= ncclNumTypes)  // InternalError: the code that callers of NCCL know
      return tutti::error(Code::InternalError, "datatype {} is out of range: 0 (ncclInt8) to {} (ncclFloat8e5m2)",
                          static_cast<int>(datatype), ncclNumTypes - 1);
    if (residence != ncclScalarDevice && residence != ncclScalarHostImmediate)
      return tutti::error(Code::InvalidArgument, "residence {} is out of range: ncclScalarDevice (0) or ncclScalarHostImmediate (1)",
                          static_cast<int>(residence));
    *op = static_cast<ncclRedOp_t>(
        c.redOps().createPreMulSum(scalar, static_cast<tutti::DataType>(datatype), residence == ncclScalarDevice));
    return {};
  });
}
TUTTI_WEAK_TWIN(ncclRedOpCreatePreMulSum);

extern "C" ncclResult_t pncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  return useComm("ncclRedOpDestroy", comm, [&](Communicator& c) -> Status {
    TUTTI_TRY(c.isBlocking() ? Status() : c.checkReady());
    return c.redOps().destroy(op);
  });
}
TUTTI_WEAK_TWIN(ncclRedOpDestroy);
