// Which calls a plugin gets, in which order and with what: this program is the plugin, in all versions, and writes them down.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "core/format.h"
#include "transport/plugin/library.h"
#include "transport/plugin/network.h"

namespace tutti::transport::plugin {
namespace {

using Calls = std::vector<std::string>;

/// What the plugin has heard, and how it answers.
struct Record {
  Calls calls;
  int initCode = 0;
  int pendingConnects = 0;  ///< connects and accepts that come to nothing at first
  int contexts = 0;         ///< that were made
  int requests = 0;
};
Record record;

template <class... Args>
int note(fmt::format_string<const Args&...> words, const Args&... args) {
  record.calls.push_back(tutti::format(words, args...));
  return 0;
}

/// The plugin's own objects are numbers; a handle holds the first word of what listen wrote.
void* numbered(int number) { return reinterpret_cast<void*>(static_cast<intptr_t>(number)); }
int numberOf(const void* object) { return static_cast<int>(reinterpret_cast<intptr_t>(object)); }
bool isPending() { return record.pendingConnects > 0 && record.pendingConnects-- > 0; }

constexpr int kListener = 70;
constexpr int kSender = 71;
constexpr int kReceiver = 72;
constexpr int kKey = 73;

int devices(int* count) { return *count = 2, note("devices"); }

template <class Properties>
int properties(int device, Properties* p) {
  static char name[] = "nic";
  *p = {};
  p->name = name;
  p->ptrSupport = 1;
  p->speed = 1000;
  p->maxComms = p->maxRecvs = 1;
  if constexpr (requires { p->maxP2pBytes; }) p->maxP2pBytes = p->maxCollBytes = size_t{1} << 30;
  return note("properties {}", device);
}

int initWith(std::string_view what) {
  note("init{}", what);
  return record.initCode;
}
int initV9(abi::Logger log) { return initWith(log != nullptr ? "" : " without a logger"); }
int initV10(abi::Logger log, abi::Profiler profiler) { return initWith(log != nullptr && profiler != nullptr ? "" : " without callbacks"); }
int initV11(void** context, uint64_t commId, abi::CommConfig* config, abi::Logger log, abi::Profiler profiler) {
  const int code = initWith(format(" of {} class {}{}", commId, config->trafficClass, log && profiler ? "" : " without callbacks"));
  *context = code == 0 ? numbered(++record.contexts) : nullptr;
  return code;
}
int finalize(void* context) { return note("finalize {}", numberOf(context)); }

int listen(std::string_view how, int device, void* handle, void** comm) {
  std::strcpy(static_cast<char*>(handle), "door");
  *comm = numbered(kListener);
  return note("listen{} on {}", how, device);
}
int listenV9(int device, void* handle, void** comm) { return listen("", device, handle, comm); }
int listenV11(void* context, int device, void* handle, void** comm) {
  return listen(format(" {}", numberOf(context)), device, handle, comm);
}

int connect(const std::string& how, int device, void* handle, void** comm) {
  *comm = isPending() ? nullptr : numbered(kSender);
  return note("connect{} to {} by {}", how, static_cast<const char*>(handle), device);
}
int connectV9(int device, void* handle, void** comm, void** deviceHandle) {
  return deviceHandle == nullptr ? 4 : connect("", device, handle, comm);
}
int connectV10(int device, abi::CommConfig* config, void* handle, void** comm, void** /*deviceHandle*/) {
  return connect(format(" class {}", config->trafficClass), device, handle, comm);
}
int connectV11(void* context, int device, void* handle, void** comm, void** /*deviceHandle*/) {
  return connect(format(" {}", numberOf(context)), device, handle, comm);
}
int accept(void* listener, void** comm, void** /*deviceHandle*/) {
  *comm = isPending() ? nullptr : numbered(kReceiver);
  return note("accept {}", numberOf(listener));
}

int regMr(void* comm, void* /*data*/, size_t size, int type, void** key) {
  *key = numbered(kKey);
  return note("regMr {} bytes {} type {}", numberOf(comm), size, type);
}
int regMrDmaBuf(void* /*comm*/, void* /*data*/, size_t /*size*/, int /*type*/, uint64_t /*offset*/, int /*fd*/, void** /*key*/) {
  return 4;
}
int deregMr(void* comm, void* key) { return note("deregMr {} key {}", numberOf(comm), numberOf(key)); }

template <class Size>
int isend(void* comm, void* /*data*/, Size size, int tag, void* key, void** request) {
  *request = numbered(++record.requests);
  return note("isend {} bytes {} tag {} key {}", numberOf(comm), size, tag, numberOf(key));
}
int isendV10(void* comm, void* data, size_t size, int tag, void* key, void* /*profilerHandle*/, void** request) {
  return isend(comm, data, size, tag, key, request);
}
template <class Size>
int irecv(void* comm, int n, void** /*data*/, Size* sizes, int* tags, void** keys, void** request) {
  *request = numbered(++record.requests);
  return note("irecv {} of {} bytes {} tag {} key {}", numberOf(comm), n, sizes[0], tags[0], numberOf(keys[0]));
}
int irecvV10(void* comm, int n, void** data, size_t* sizes, int* tags, void** keys, void** profilerHandles, void** request) {
  return profilerHandles == nullptr ? 4 : irecv(comm, n, data, sizes, tags, keys, request);
}
int iflush(void* comm, int n, void** /*data*/, int* sizes, void** /*keys*/, void** request) {
  *request = nullptr;
  return note("iflush {} of {} bytes {}", numberOf(comm), n, sizes[0]);
}
int test(void* request, int* done, int* size) {
  *done = 1;
  *size = 5;
  return note("test {}", numberOf(request));
}
int closeSend(void* comm) { return note("closeSend {}", numberOf(comm)); }
int closeRecv(void* comm) { return note("closeRecv {}", numberOf(comm)); }
int closeListen(void* comm) { return note("closeListen {}", numberOf(comm)); }

}  // namespace
}  // namespace tutti::transport::plugin

#define RECORDING_EXPORT extern "C" __attribute__((visibility("default"))) const

namespace plug = tutti::transport::plugin;

RECORDING_EXPORT plug::abi::NetV8 ncclNetPlugin_v8 = {
    "Recording", plug::initV9, plug::devices, plug::properties<plug::abi::PropertiesV8>, plug::listenV9, plug::connectV9, plug::accept,
    plug::regMr, plug::regMrDmaBuf, plug::deregMr, plug::isend<int>, plug::irecv<int>, plug::iflush, plug::test, plug::closeSend,
    plug::closeRecv, plug::closeListen, nullptr, nullptr};
RECORDING_EXPORT plug::abi::NetV9 ncclNetPlugin_v9 = {
    "Recording", plug::initV9, plug::devices, plug::properties<plug::abi::PropertiesV9>, plug::listenV9, plug::connectV9, plug::accept,
    plug::regMr, plug::regMrDmaBuf, plug::deregMr, plug::isend<size_t>, plug::irecv<size_t>, plug::iflush, plug::test, plug::closeSend,
    plug::closeRecv, plug::closeListen, nullptr, nullptr, nullptr};
RECORDING_EXPORT plug::abi::NetV10 ncclNetPlugin_v10 = {
    "Recording", plug::initV10, plug::devices, plug::properties<plug::abi::PropertiesV9>, plug::listenV9, plug::connectV10, plug::accept,
    plug::regMr, plug::regMrDmaBuf, plug::deregMr, plug::isendV10, plug::irecvV10, plug::iflush, plug::test, plug::closeSend,
    plug::closeRecv, plug::closeListen, nullptr, nullptr, nullptr};
RECORDING_EXPORT plug::abi::NetV11 ncclNetPlugin_v11 = {
    "Recording", plug::initV11, plug::devices, plug::properties<plug::abi::PropertiesV11>, plug::listenV11, plug::connectV11, plug::accept,
    plug::regMr, plug::regMrDmaBuf, plug::deregMr, plug::isendV10, plug::irecvV10, plug::iflush, plug::test, plug::closeSend,
    plug::closeRecv, plug::closeListen, nullptr, nullptr, nullptr, plug::finalize, nullptr};

namespace tutti::transport::plugin {
namespace {

/// The network of a version, opened for nobody in particular unless `use` says more.
std::unique_ptr<PluginNetwork> open(int version, const net::Use& use = {}) {
  auto library = Library::load("STATIC_PLUGIN", version);
  if (!library || (*library)->version().number != version) {
    ADD_FAILURE() << "no version " << version;
    return nullptr;
  }
  auto network = PluginNetwork::create(std::move(*library), use);
  if (!network) {
    ADD_FAILURE() << network.error().text();
    return nullptr;
  }
  return std::move(*network);
}

class PluginCalls : public testing::Test {
 protected:
  PluginCalls() {
    Library::forgetForTest();
    record = {};
  }
};
class PluginCallsOf : public PluginCalls, public testing::WithParamInterface<int> {};

/// From init to finalize, every call with all that it is given.
TEST_P(PluginCallsOf, ALifeTakesTheseInThisOrder) {
  const int version = GetParam();
  const net::Use use{99, 7};
  auto opened = open(version, use);
  ASSERT_NE(opened, nullptr);
  std::shared_ptr<net::Network> network = *opened->forCommunicator(use);
  if (network == nullptr) network = std::move(opened);
  opened.reset();
  record.pendingConnects = 2;
  auto listener = network->listen(1);
  ASSERT_TRUE(listener);
  auto connecting = network->connect(1, (*listener)->handle());
  ASSERT_TRUE(connecting);
  EXPECT_EQ(*(*connecting)->poll(), nullptr) << "not yet";
  EXPECT_EQ(*(*listener)->accept(), nullptr) << "not yet";
  auto sender = std::move(*(*connecting)->poll());
  auto receiver = std::move(*(*listener)->accept());
  ASSERT_TRUE(sender != nullptr && receiver != nullptr);
  std::byte data[4096];
  const auto key = sender->registerMemory(data, sizeof data, net::MemoryKind::Host);
  ASSERT_TRUE(key);
  net::Request sent;
  net::Request received;
  const net::OutMessage message{data, 1000, 12, *key};
  EXPECT_EQ(sender->isend({&message, 1}, &sent), Poll::Ready);
  EXPECT_EQ(receiver->irecv({data, 2000, 12, *key}, &received), Poll::Ready);
  uint64_t bytes = 0;
  EXPECT_EQ(sender->test(sent, nullptr).poll, Poll::Ready);
  EXPECT_EQ(receiver->test(received, &bytes).poll, Poll::Ready);
  EXPECT_EQ(bytes, 5u);
  net::Request flushed;
  EXPECT_EQ(receiver->iflush({data, 5, 12, *key}, &flushed), Poll::Ready);
  sender->deregisterMemory(*key);
  network.reset();  // what was made from it lives on
  sender.reset();
  receiver.reset();
  connecting->reset();
  listener->reset();
  const std::string context = version >= 11 ? " 1" : "";
  const std::string traffic = version == 10 ? " class 7" : context;
  Calls expected{version >= 11 ? "init of 99 class 7" : "init",
                 "devices",
                 "properties 0",
                 "properties 1",
                 "listen" + context + " on 1",
                 "connect" + traffic + " to door by 1",
                 "accept 70",
                 "connect" + traffic + " to door by 1",
                 "accept 70",
                 "regMr 71 bytes 4096 type 1",
                 "isend 71 bytes 1000 tag 12 key 73",
                 "irecv 72 of 1 bytes 2000 tag 12 key 73",
                 "test 1",
                 "test 2",
                 "iflush 72 of 1 bytes 5",
                 "deregMr 71 key 73",
                 "closeSend 71",
                 "closeRecv 72",
                 "closeListen 70"};
  if (version >= 11) expected.emplace_back("finalize 1");
  EXPECT_EQ(record.calls, expected);
}

INSTANTIATE_TEST_SUITE_P(Versions, PluginCallsOf, testing::Values(8, 9, 10, 11));

/// The first communicator takes over the context that found the devices; each other one gets a context of its own, and ends it.
TEST_F(PluginCalls, Version11HasAnInitForEachCommunicator) {
  const auto network = open(11, {5, -1});
  ASSERT_NE(network, nullptr);
  auto first = *network->forCommunicator({5, -1});
  auto second = *network->forCommunicator({6, 3});
  auto sameIdAgain = *network->forCommunicator({5, -1});
  ASSERT_TRUE(first != nullptr && second != nullptr && sameIdAgain != nullptr);
  EXPECT_EQ(second->devices(), 2);
  EXPECT_EQ(second->properties(1)->name, "nic");
  EXPECT_TRUE(second->listen(0));
  EXPECT_FALSE(network->listen(0)) << "it has no context any more";
  second.reset();
  first.reset();
  sameIdAgain.reset();
  EXPECT_EQ(record.calls, (Calls{"init of 5 class -1", "devices", "properties 0", "properties 1", "init of 6 class 3", "init of 5 class -1",
                                 "listen 2 on 0", "closeListen 70", "finalize 2", "finalize 1", "finalize 3"}));
}

/// A context for nobody ends as soon as somebody has one, and not before: the plugin is in use all the time.
TEST_F(PluginCalls, TheContextThatFoundTheDevicesIsNotLeftOver) {
  auto network = open(11);
  auto first = *network->forCommunicator({5, 2});
  network.reset();
  EXPECT_EQ(record.calls,
            (Calls{"init of 0 class -1", "devices", "properties 0", "properties 1", "init of 5 class 2", "finalize 1"}));
  first.reset();
  EXPECT_EQ(record.calls.back(), "finalize 2");
}

/// As it is when communicators are made and destroyed in turns. Versions before 11 have no end, so they begin once.
TEST_P(PluginCallsOf, ANetworkThatIsOpenedAgainAsksForItsDevicesAgain) {
  const bool initsEach = GetParam() >= 11;
  for (const int64_t times : {1, 2, 3}) {
    const auto network = open(GetParam());
    ASSERT_NE(network, nullptr);
    EXPECT_EQ(network->devices(), 2);
    const auto count = [](std::string_view what) {
      return std::count_if(record.calls.begin(), record.calls.end(), [what](const std::string& call) { return call.starts_with(what); });
    };
    EXPECT_EQ(count("init"), initsEach ? times : 1);
    EXPECT_EQ(count("devices"), times);
    EXPECT_EQ(count("finalize"), initsEach ? times - 1 : 0);
  }
}

TEST_F(PluginCalls, AnInitThatFailsFailsThatCommunicatorAlone) {
  const auto network = open(11, {5, -1});
  auto first = *network->forCommunicator({5, -1});
  record.initCode = 2;
  const auto second = network->forCommunicator({6, -1});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Code::SystemError);
  EXPECT_NE(second.error().text().find("network Recording: init"), std::string::npos) << second.error().text();
  record.initCode = 0;
  EXPECT_TRUE(network->forCommunicator({6, -1}));
  EXPECT_TRUE(first->listen(0));
  EXPECT_EQ(std::count(record.calls.begin(), record.calls.end(), "init of 6 class -1"), 2);
}

/// The traffic class goes with each connection there, and nothing else knows of communicators.
TEST_F(PluginCalls, Version10HasOneInitAndAClassForEachConnection) {
  const auto network = open(10);
  for (const int32_t trafficClass : {-1, 4}) {
    const auto mine = *network->forCommunicator({5, trafficClass});
    ASSERT_NE(mine, nullptr);
    const auto connecting = mine->connect(0, net::Handle{});
    EXPECT_TRUE((*connecting)->poll());
    EXPECT_EQ(record.calls[record.calls.size() - 2], format("connect class {} to  by 0", trafficClass)) << record.calls.back();
  }
  EXPECT_EQ(std::count(record.calls.begin(), record.calls.end(), "init"), 1);
}

TEST_F(PluginCalls, Version9KnowsNoCommunicators) {
  for (const int version : {8, 9}) {
    const auto network = open(version);
    EXPECT_EQ(*network->forCommunicator({5, 1}), nullptr) << "one for all";
    EXPECT_TRUE(network->listen(0));
  }
}

}  // namespace
}  // namespace tutti::transport::plugin
