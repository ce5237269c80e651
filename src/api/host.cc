// tutti.h: host devices, host streams, and what a communicator can tell of itself.

#include <string_view>

#include "api/devices.h"
#include "api/guard.h"
#include "api/text.h"
#include "tutti.h"

namespace tutti::api {
namespace {

using comm::CallRequest;

std::shared_ptr<exec::host::Stream> findStream(cudaStream_t stream) { return comm::process().streams.find(stream); }

Status noStream(cudaStream_t stream) {
  return error(Code::InvalidArgument, "stream {} is no live host stream: expected one made by tuttiStreamCreate",
               static_cast<void*>(stream));
}

struct NamedCollective {
  std::string_view name;
  Collective collective;
  bool receives;
};
constexpr NamedCollective kCollectives[] = {
    {"all_reduce", Collective::AllReduce, false},   {"reduce", Collective::Reduce, false},
    {"broadcast", Collective::Broadcast, false},    {"reduce_scatter", Collective::ReduceScatter, false},
    {"all_gather", Collective::AllGather, false},   {"all_to_all", Collective::AllToAll, false},
    {"gather", Collective::Gather, false},          {"scatter", Collective::Scatter, false},
    {"send", Collective::SendRecv, false},          {"recv", Collective::SendRecv, true},
};

Status explain(comm::Communicator& comm, const NamedCollective& named, CallRequest request, std::string& text) {
  request.function = "tuttiExplain";
  request.collective = named.collective;
  request.receives = named.receives;
  auto explanation = comm.explain(request);
  if (!explanation) return explanation.error();
  explanation->collective = named.name;
  text = plan::toJson(*explanation);
  return {};
}

std::string describeMemory(const comm::Communicator& comm) {
  if (!comm.isOnGpu() || !comm.isOpen()) return "null";
  const memory::Usage usage = comm.gpuBudget().usage();
  std::string text = format(R"({{"device":{})", comm.device());
  for (size_t p = 0; p < memory::kNumPurposes; ++p)
    text += format(R"(,"{}":{})", memory::name(static_cast<memory::Purpose>(p)), usage.bytes[p].value);
  return text + format(R"(,"limit":{},"host":{}}})", usage.budget.value, comm.hostBudget().usage().limited().value);
}

std::string describeFlight(std::span<const std::byte> bytes) {
  std::string text = "[";
  const auto log = bytes.empty() ? tl::unexpected(Status()) : observe::FlightLog::attach(bytes);
  if (log) {
    for (const observe::FlightEvent& e : log->read().events) {
      if (text.size() > 1) text += ',';
      text += format(R"({{"kind":"{}","sequence":{},"collective":"{}","count":{},"type":"{}","op":"{}","peer":{},"nanosecondsAgo":{}}})",
                     observe::name(e.kind), e.sequence, name(e.collective), e.count, name(e.type), name(e.op), e.peer,
                     log->nanosecondsAgo(e));
    }
  }
  return text + "]";
}

}  // namespace
}  // namespace tutti::api

using tutti::Code;
using tutti::Status;
using tutti::api::guard;
using tutti::api::withComm;

extern "C" ncclResult_t tuttiGetHostDeviceCount(int* count) {
  return guard("tuttiGetHostDeviceCount", [&]() -> Status {
    if (count == nullptr) return tutti::error(Code::InvalidArgument, "count is NULL: expected where to write the number");
    *count = tutti::api::hostDevices();
    return {};
  });
}

extern "C" ncclResult_t tuttiSetHostDevice(int device) {
  return guard("tuttiSetHostDevice", [&]() -> Status {
    const int devices = tutti::api::hostDevices();
    if (device < 0 || device >= devices)
      return tutti::error(Code::InvalidArgument, "device {} is out of range: host devices are 0 to {}", device, devices - 1);
    tutti::comm::thisThread().hostDevice = device;
    return {};
  });
}

extern "C" ncclResult_t tuttiGetHostDevice(int* device) {
  return guard("tuttiGetHostDevice", [&]() -> Status {
    if (device == nullptr) return tutti::error(Code::InvalidArgument, "device is NULL: expected where to write the number");
    *device = tutti::comm::thisThread().hostDevice;
    return {};
  });
}

extern "C" ncclResult_t tuttiStreamCreate(cudaStream_t* s) {
  return guard("tuttiStreamCreate", [&]() -> Status {
    if (s == nullptr) return tutti::error(Code::InvalidArgument, "s is NULL: expected where to write the stream");
    const auto stream = tutti::comm::process().streams.create();
    if (!stream) return stream.error();
    *s = static_cast<cudaStream_t>(*stream);
    return {};
  });
}

extern "C" ncclResult_t tuttiStreamDestroy(cudaStream_t s) {
  return guard("tuttiStreamDestroy", [&]() -> Status {
    if (s == nullptr) return {};
    const auto stream = tutti::comm::process().streams.remove(s);
    if (stream == nullptr) return tutti::api::noStream(s);
    stream->stop();
    return {};
  });
}

extern "C" ncclResult_t tuttiStreamSynchronize(cudaStream_t s) {
  return guard("tuttiStreamSynchronize", [&]() -> Status {
    if (s == nullptr) return {};
    const auto stream = tutti::api::findStream(s);
    if (stream == nullptr) return tutti::api::noStream(s);
    stream->synchronize();
    return stream->takeError();
  });
}

extern "C" ncclResult_t tuttiStreamQuery(cudaStream_t s) {
  bool pending = false;
  const ncclResult_t result = guard("tuttiStreamQuery", [&]() -> Status {
    if (s == nullptr) return {};
    const auto stream = tutti::api::findStream(s);
    if (stream == nullptr) return tutti::api::noStream(s);
    pending = !stream->idle();
    return pending ? Status() : stream->takeError();
  });
  return pending ? ncclInProgress : result;
}

extern "C" ncclResult_t tuttiExplain(ncclComm_t comm, const char* collective, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                                     int root, char* text, size_t capacity, size_t* needed) {
  return withComm("tuttiExplain", comm, [&](tutti::comm::Communicator& c) -> Status {
    TUTTI_TRY(tutti::api::checkText(text, capacity));
    if (collective == nullptr) return tutti::error(Code::InvalidArgument, "collective is NULL: expected a name such as all_reduce");
    tutti::comm::CallRequest request;
    request.count = count;
    request.type = datatype;
    request.op = op;
    request.root = root;
    for (const auto& named : tutti::api::kCollectives) {
      if (named.name != collective) continue;
      std::string json;
      TUTTI_TRY(tutti::api::explain(c, named, request, json));
      tutti::api::writeText(json, text, capacity, needed);
      return {};
    }
    return tutti::error(Code::InvalidArgument,
                        "collective '{}' is unknown: known are all_reduce, reduce, broadcast, reduce_scatter, all_gather, all_to_all, "
                        "gather, scatter, send, recv",
                        collective);
  });
}

extern "C" ncclResult_t tuttiCommGetMemory(ncclComm_t comm, char* text, size_t capacity, size_t* needed) {
  return withComm("tuttiCommGetMemory", comm, [&](tutti::comm::Communicator& c) -> Status {
    TUTTI_TRY(tutti::api::checkText(text, capacity));
    tutti::api::writeText(tutti::api::describeMemory(c), text, capacity, needed);
    return {};
  });
}

extern "C" ncclResult_t tuttiReadFlightRecorder(ncclComm_t comm, char* text, size_t capacity, size_t* needed) {
  return withComm("tuttiReadFlightRecorder", comm, [&](tutti::comm::Communicator& c) -> Status {
    TUTTI_TRY(tutti::api::checkText(text, capacity));
    tutti::api::writeText(tutti::api::describeFlight(c.flightBytes()), text, capacity, needed);
    return {};
  });
}
