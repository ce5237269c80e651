#include "transport/plugin/versions.h"

#include <algorithm>

namespace tutti::transport::plugin {
namespace {

static_assert(net::Use::kNoClass == abi::kTrafficClassUndefined);

constexpr uint64_t kMostBytes = uint64_t{1} << 40;
constexpr uint64_t kMostIntBytes = uint64_t{1} << 30;

int noProfiler(void** /*eventHandle*/, int /*type*/, void* /*parent*/, int64_t /*pluginId*/, void* /*extra*/) { return 0; }

/// What differs between versions, each difference once.
template <class Net>
struct Thunks {
  static constexpr int kVersion = Net::kVersion;
  static constexpr bool kContext = kVersion >= 11;
  static constexpr bool kProfiled = kVersion >= 10;
  static constexpr bool kLargeProperties = kVersion >= 9;
  using Size = Net::Size;

  static const Net& net(const void* raw) { return *static_cast<const Net*>(raw); }
  static const char* name(const void* raw) { return net(raw).name; }

  static bool complete(const void* raw) {
    const Net& n = net(raw);
    return n.init && n.devices && n.getProperties && n.listen && n.connect && n.accept && n.regMr && n.deregMr && n.isend && n.irecv &&
           n.test && n.closeSend && n.closeRecv && n.closeListen;
  }

  static int init(const void* raw, void** context, [[maybe_unused]] const net::Use& use, abi::Logger log) {
    *context = nullptr;
    if constexpr (kContext) {
      abi::CommConfig config{use.trafficClass};
      return net(raw).init(context, use.communicator, &config, log, noProfiler);
    } else if constexpr (kProfiled) {
      return net(raw).init(log, noProfiler);
    } else {
      return net(raw).init(log);
    }
  }

  static int devices(const void* raw, int* count) { return net(raw).devices(count); }

  static int getProperties(const void* raw, int device, abi::PropertiesV11* out) {
    typename Net::Properties own{};
    if (const int code = net(raw).getProperties(device, &own); code != 0) return code;
    *out = {};
    out->name = own.name;
    out->pciPath = own.pciPath;
    out->guid = own.guid;
    out->ptrSupport = own.ptrSupport;
    out->regIsGlobal = own.regIsGlobal;
    out->speed = own.speed;
    out->port = own.port;
    out->latency = own.latency;
    out->maxComms = own.maxComms;
    out->maxRecvs = own.maxRecvs;
    out->netDeviceType = own.netDeviceType;
    out->netDeviceVersion = own.netDeviceVersion;
    if constexpr (kLargeProperties) {
      out->forceFlush = own.forceFlush;
      out->vProps = own.vProps;
      out->maxP2pBytes = own.maxP2pBytes;
      out->maxCollBytes = own.maxCollBytes;
    } else {
      out->vProps = {1, {device, 0, 0, 0}};
      out->maxP2pBytes = out->maxCollBytes = kMostIntBytes;
    }
    out->maxMultiRequestSize = 1;
    if constexpr (kVersion >= 11) out->maxMultiRequestSize = own.maxMultiRequestSize;
    return 0;
  }

  static int listen(const void* raw, [[maybe_unused]] void* context, int device, void* handle, void** comm) {
    if constexpr (kContext) {
      return net(raw).listen(context, device, handle, comm);
    } else {
      return net(raw).listen(device, handle, comm);
    }
  }

  static int connect(const void* raw, [[maybe_unused]] void* context, int device, [[maybe_unused]] int trafficClass, void* handle,
                     void** comm) {
    void* deviceHandle = nullptr;
    if constexpr (kContext) {
      return net(raw).connect(context, device, handle, comm, &deviceHandle);
    } else if constexpr (kVersion == 10) {
      abi::CommConfig config{trafficClass};
      return net(raw).connect(device, &config, handle, comm, &deviceHandle);
    } else {
      return net(raw).connect(device, handle, comm, &deviceHandle);
    }
  }

  static int accept(const void* raw, void* listenComm, void** recvComm) {
    void* deviceHandle = nullptr;
    return net(raw).accept(listenComm, recvComm, &deviceHandle);
  }
  static int regMr(const void* raw, void* comm, void* data, size_t size, int type, void** key) {
    return net(raw).regMr(comm, data, size, type, key);
  }
  static int deregMr(const void* raw, void* comm, void* key) { return net(raw).deregMr(comm, key); }

  static int isend(const void* raw, void* comm, void* data, size_t size, int tag, void* key, void** request) {
    if constexpr (kProfiled) {
      return net(raw).isend(comm, data, size, tag, key, nullptr, request);
    } else {
      return net(raw).isend(comm, data, static_cast<Size>(size), tag, key, request);
    }
  }

  static int irecv(const void* raw, void* comm, void* data, size_t size, int tag, void* key, void** request) {
    auto own = static_cast<Size>(size);
    if constexpr (kProfiled) {
      void* profilerHandle = nullptr;
      return net(raw).irecv(comm, 1, &data, &own, &tag, &key, &profilerHandle, request);
    } else {
      return net(raw).irecv(comm, 1, &data, &own, &tag, &key, request);
    }
  }

  static int iflush(const void* raw, void* comm, void* data, int size, void* key, void** request) {
    *request = nullptr;
    return net(raw).iflush == nullptr ? 0 : net(raw).iflush(comm, 1, &data, &size, &key, request);
  }
  static int test(const void* raw, void* request, int* done, int* size) { return net(raw).test(request, done, size); }
  static int closeSend(const void* raw, void* comm) { return net(raw).closeSend(comm); }
  static int closeRecv(const void* raw, void* comm) { return net(raw).closeRecv(comm); }
  static int closeListen(const void* raw, void* comm) { return net(raw).closeListen(comm); }

  static int finalize([[maybe_unused]] const void* raw, [[maybe_unused]] void* context) {
    if constexpr (kContext) {
      if (net(raw).finalize != nullptr) return net(raw).finalize(context);
    }
    return 0;
  }

  static constexpr Version entry(const char* symbol) {
    return {.number = kVersion,
            .symbol = symbol,
            .maxMessageBytes = sizeof(Size) == sizeof(int) ? kMostIntBytes : kMostBytes,
            .initPerComm = kContext,
            .tellsTraffic = kProfiled,
            .name = name,
            .complete = complete,
            .init = init,
            .devices = devices,
            .getProperties = getProperties,
            .listen = listen,
            .connect = connect,
            .accept = accept,
            .regMr = regMr,
            .deregMr = deregMr,
            .isend = isend,
            .irecv = irecv,
            .iflush = iflush,
            .test = test,
            .closeSend = closeSend,
            .closeRecv = closeRecv,
            .closeListen = closeListen,
            .finalize = finalize};
  }
};

constexpr Version kVersions[] = {
    Thunks<abi::NetV11>::entry("ncclNetPlugin_v11"),
    Thunks<abi::NetV10>::entry("ncclNetPlugin_v10"),
    Thunks<abi::NetV9>::entry("ncclNetPlugin_v9"),
    Thunks<abi::NetV8>::entry("ncclNetPlugin_v8"),
};

}  // namespace

std::span<const Version> versions() { return kVersions; }

}  // namespace tutti::transport::plugin
