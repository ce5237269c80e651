// An external network, complete and small: what a plugin exports, in the versions 8 to 11 of its interface.
//
// It carries messages between processes of one host (link.h). The functions are written once, as version 11 has them; for an older
// version a few lines turn its calls into these. NET_EXAMPLE_BREAK=init, devices, none or properties makes it misbehave there, which is
// what a library that loads plugins has to live with; small makes it carry short messages only. NET_EXAMPLE_DEVICES=N gives it so many
// devices of NET_EXAMPLE_MBPS each (10000), and NET_EXAMPLE_PCI=PATH,… the sysfs paths of the first ones; what each is used for is logged,
// and so is which communicator a context is for.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "link.h"
#include "transport/plugin/abi.h"

namespace example {
namespace {

namespace abi = tutti::transport::plugin::abi;

abi::Logger log = nullptr;

bool broken(const char* where) {
  const char* const what = std::getenv("NET_EXAMPLE_BREAK");
  return what != nullptr && std::strcmp(what, where) == 0;
}

int numberFrom(const char* variable, int usual) {
  const char* const text = std::getenv(variable);
  constexpr long kMost = 1'000'000;
  const long number = text != nullptr ? std::strtol(text, nullptr, 10) : 0;
  return number > 0 ? static_cast<int>(std::min(number, kMost)) : usual;
}

constexpr int kMostDevices = 16;
int deviceCount() { return std::min(numberFrom("NET_EXAMPLE_DEVICES", 1), kMostDevices); }

/// What PCI device it is; null: none.
char* pciPathOf(int device) {
  static char paths[kMostDevices][256];
  const char* text = std::getenv("NET_EXAMPLE_PCI");
  for (int i = 0; i < device && text != nullptr; ++i) {
    text = std::strchr(text, ',');
    if (text != nullptr) ++text;
  }
  if (text == nullptr || *text == 0 || *text == ',') return nullptr;
  std::snprintf(paths[device], sizeof paths[device], "%.*s", static_cast<int>(std::strcspn(text, ",")), text);
  return paths[device];
}

constexpr int kInfo = 3;
constexpr unsigned long kNet = 16;

void tell(const char* what, int device) {
  if (log != nullptr) log(kInfo, kNet, __FILE__, __LINE__, "NET/Example : %s device %d", what, device);
}

int start(abi::Logger logger) {
  log = logger;
  if (broken("init")) return kSystemError;
  constexpr unsigned long kInit = 1;
  if (log != nullptr) log(kInfo, kInit, __FILE__, __LINE__, "NET/Example : %s", "Unix-domain sockets of one host");
  return kSuccess;
}

int devices(int* count) {
  *count = broken("devices") ? -7 : broken("none") ? 0 : deviceCount();
  return kSuccess;
}

template <class Properties>
int properties(int device, Properties* p) {
  if (device < 0 || device >= deviceCount()) return kInvalidArgument;
  static char names[kMostDevices][16];
  std::snprintf(names[device], sizeof names[device], "example%d", device);
  std::memset(static_cast<void*>(p), 0, sizeof *p);
  p->name = names[device];
  p->pciPath = pciPathOf(device);
  p->guid = static_cast<uint64_t>(device) + 1;
  p->ptrSupport = 1;
  p->speed = numberFrom("NET_EXAMPLE_MBPS", 10'000);
  p->latency = broken("properties") ? NAN : 5;
  p->maxComms = 1024;
  p->maxRecvs = 1;
  if constexpr (requires { p->maxP2pBytes; }) {
    p->vProps.ndevs = 1;
    p->vProps.devs[0] = device;
    p->maxP2pBytes = p->maxCollBytes = broken("small") ? 100'000 : size_t{1} << 40;
  }
  if constexpr (requires { p->maxMultiRequestSize; }) p->maxMultiRequestSize = 1;
  return kSuccess;
}

struct ListenComm {
  Listening listening;
};

int listen(void* /*context*/, int device, void* handle, void** comm) {
  auto* const made = new ListenComm;
  std::string name;
  if (const int code = made->listening.open(&name); code != kSuccess || name.size() >= abi::kHandleBytes) {
    delete made;
    return code != kSuccess ? code : kSystemError;
  }
  std::memset(handle, 0, abi::kHandleBytes);
  std::memcpy(handle, name.c_str(), name.size());
  *comm = made;
  tell("listens on", device);
  return kSuccess;
}

int connect(void* /*context*/, int device, void* handle, void** comm, void** /*deviceHandle*/) {
  const char* const text = static_cast<const char*>(handle);
  Link* link = nullptr;
  const int code = Link::connect(std::string(text, strnlen(text, abi::kHandleBytes)), &link);
  *comm = link;
  if (link != nullptr) tell("sends by", device);
  return code;
}

int accept(void* listenComm, void** comm, void** /*deviceHandle*/) {
  Link* link = nullptr;
  const int code = static_cast<ListenComm*>(listenComm)->listening.accept(&link);
  *comm = link;
  return code;
}

int regMr(void* /*comm*/, void* data, size_t size, int type, void** key) {
  if (type != 1) return kInvalidArgument;
  *key = new Region{static_cast<std::byte*>(data), size};
  return kSuccess;
}

int regMrDmaBuf(void* /*comm*/, void* /*data*/, size_t /*size*/, int /*type*/, uint64_t /*offset*/, int /*fd*/, void** /*key*/) {
  return kInvalidArgument;
}

int deregMr(void* /*comm*/, void* key) {
  delete static_cast<Region*>(key);
  return kSuccess;
}

int transfer(void* comm, void* data, size_t bytes, int tag, void* key, void** request) {
  const auto* const region = static_cast<Region*>(key);
  if (bytes > 0 && (region == nullptr || !region->holds(data, bytes))) return kInvalidArgument;
  *request = static_cast<Link*>(comm)->begin(data, bytes, tag);
  return kSuccess;
}

int isend(void* comm, void* data, size_t bytes, int tag, void* key, void* /*profilerHandle*/, void** request) {
  return transfer(comm, data, bytes, tag, key, request);
}

int irecv(void* comm, int n, void** data, size_t* sizes, int* tags, void** keys, void** /*profilerHandles*/, void** request) {
  return n == 1 ? transfer(comm, data[0], sizes[0], tags[0], keys[0], request) : kInvalidArgument;
}

int iflush(void* /*comm*/, int /*n*/, void** /*data*/, int* /*sizes*/, void** /*keys*/, void** request) {
  *request = nullptr;
  return kSuccess;
}

int test(void* request, int* done, int* size) {
  auto* const r = static_cast<Request*>(request);
  *done = 0;
  const int code = r->done ? kSuccess : r->link->progress();
  if (!r->done) return code;  // one behind it may have failed
  *done = 1;
  if (size != nullptr) *size = static_cast<int>(r->frame.bytes);
  r->link->forget(r);
  return kSuccess;
}

int closeLink(void* comm) {
  delete static_cast<Link*>(comm);
  return kSuccess;
}

int closeListen(void* comm) {
  delete static_cast<ListenComm*>(comm);
  return kSuccess;
}

int getDeviceMr(void* /*comm*/, void* /*key*/, void** /*pointer*/) { return kInvalidArgument; }
int irecvConsumed(void* /*comm*/, int /*n*/, void* /*request*/) { return kInvalidArgument; }
int makeVDevice(int* /*device*/, abi::VirtualDevice* /*members*/) { return kInvalidArgument; }

/// What a context is for.
struct Context {
  uint64_t communicator;
  int trafficClass;
};

void tell(const char* what, const Context& context) {
  if (log == nullptr) return;
  log(kInfo, kNet, __FILE__, __LINE__, "NET/Example : %s context of communicator 0x%llx, traffic class %d", what,
      static_cast<unsigned long long>(context.communicator), context.trafficClass);
}

int initV11(void** context, uint64_t commId, abi::CommConfig* config, abi::Logger logger, abi::Profiler /*profiler*/) {
  *context = nullptr;
  if (config == nullptr) return kInvalidArgument;
  const int code = start(logger);
  if (code != kSuccess) return code;
  auto* const made = new Context{commId, config->trafficClass};
  tell("makes", *made);
  *context = made;
  return kSuccess;
}
int finalize(void* context) {
  auto* const made = static_cast<Context*>(context);
  if (made == nullptr) return kInvalidArgument;
  tell("ends", *made);
  delete made;
  return kSuccess;
}
int setNetAttr(void* /*context*/, void* /*attributes*/) { return kSuccess; }

int initV10(abi::Logger logger, abi::Profiler /*profiler*/) { return start(logger); }
int listenV10(int device, void* handle, void** comm) { return listen(nullptr, device, handle, comm); }
int connectV10(int device, abi::CommConfig* config, void* handle, void** comm, void** deviceHandle) {
  return config == nullptr ? kInvalidArgument : connect(nullptr, device, handle, comm, deviceHandle);
}

int initV9(abi::Logger logger) { return start(logger); }
int connectV9(int device, void* handle, void** comm, void** deviceHandle) { return connect(nullptr, device, handle, comm, deviceHandle); }
int isendV9(void* comm, void* data, size_t bytes, int tag, void* key, void** request) {
  return isend(comm, data, bytes, tag, key, nullptr, request);
}
int irecvV9(void* comm, int n, void** data, size_t* sizes, int* tags, void** keys, void** request) {
  return irecv(comm, n, data, sizes, tags, keys, nullptr, request);
}

int isendV8(void* comm, void* data, int bytes, int tag, void* key, void** request) {
  return bytes < 0 ? kInvalidArgument : isendV9(comm, data, static_cast<size_t>(bytes), tag, key, request);
}
int irecvV8(void* comm, int n, void** data, int* sizes, int* tags, void** keys, void** request) {
  if (n != 1 || sizes[0] < 0) return kInvalidArgument;
  auto size = static_cast<size_t>(sizes[0]);
  return irecvV9(comm, n, data, &size, tags, keys, request);
}

}  // namespace
}  // namespace example

#define EXAMPLE_EXPORT extern "C" __attribute__((visibility("default")))

EXAMPLE_EXPORT const tutti::transport::plugin::abi::NetV11 ncclNetPlugin_v11 = {
    "Example", example::initV11, example::devices, example::properties<tutti::transport::plugin::abi::PropertiesV11>, example::listen,
    example::connect, example::accept, example::regMr, example::regMrDmaBuf, example::deregMr, example::isend, example::irecv,
    example::iflush, example::test, example::closeLink, example::closeLink, example::closeListen, example::getDeviceMr,
    example::irecvConsumed, example::makeVDevice, example::finalize, example::setNetAttr};

EXAMPLE_EXPORT const tutti::transport::plugin::abi::NetV10 ncclNetPlugin_v10 = {
    "Example", example::initV10, example::devices, example::properties<tutti::transport::plugin::abi::PropertiesV9>, example::listenV10,
    example::connectV10, example::accept, example::regMr, example::regMrDmaBuf, example::deregMr, example::isend, example::irecv,
    example::iflush, example::test, example::closeLink, example::closeLink, example::closeListen, example::getDeviceMr,
    example::irecvConsumed, example::makeVDevice};

EXAMPLE_EXPORT const tutti::transport::plugin::abi::NetV9 ncclNetPlugin_v9 = {
    "Example", example::initV9, example::devices, example::properties<tutti::transport::plugin::abi::PropertiesV9>, example::listenV10,
    example::connectV9, example::accept, example::regMr, example::regMrDmaBuf, example::deregMr, example::isendV9, example::irecvV9,
    example::iflush, example::test, example::closeLink, example::closeLink, example::closeListen, example::getDeviceMr,
    example::irecvConsumed, example::makeVDevice};

EXAMPLE_EXPORT const tutti::transport::plugin::abi::NetV8 ncclNetPlugin_v8 = {
    "Example", example::initV9, example::devices, example::properties<tutti::transport::plugin::abi::PropertiesV8>, example::listenV10,
    example::connectV9, example::accept, example::regMr, example::regMrDmaBuf, example::deregMr, example::isendV8, example::irecvV8,
    example::iflush, example::test, example::closeLink, example::closeLink, example::closeListen, example::getDeviceMr,
    example::irecvConsumed};
