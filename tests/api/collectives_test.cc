// Every argument of every collective and message is checked, in the documented order, with the documented code and a text that
// names the argument, its value and what is allowed. Nothing is listed by hand: each check runs for every function that has the
// argument.
#include <functional>
#include <vector>

#include "api/api_fixture.h"

namespace tutti::api_test::collectives_test {
namespace {

/// The arguments of a call; what a function does not have is left out.
struct Arguments {
  const void* send = nullptr;
  void* recv = nullptr;
  size_t count = 4;
  ncclDataType_t type = ncclFloat;
  ncclRedOp_t op = ncclSum;
  int root = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
};

struct Function {
  const char* name;
  bool hasOp;
  bool hasRoot;
  bool usesSend;
  bool usesRecv;
  std::function<ncclResult_t(const Arguments&)> call;
};

const std::vector<Function>& functions() {
  static const std::vector<Function> all = {
      {"ncclAllReduce", true, false, true, true,
       [](const Arguments& a) { return ncclAllReduce(a.send, a.recv, a.count, a.type, a.op, a.comm, a.stream); }},
      {"ncclReduce", true, true, true, true,
       [](const Arguments& a) { return ncclReduce(a.send, a.recv, a.count, a.type, a.op, a.root, a.comm, a.stream); }},
      {"ncclReduceScatter", true, false, true, true,
       [](const Arguments& a) { return ncclReduceScatter(a.send, a.recv, a.count, a.type, a.op, a.comm, a.stream); }},
      {"ncclBroadcast", false, true, true, true,
       [](const Arguments& a) { return ncclBroadcast(a.send, a.recv, a.count, a.type, a.root, a.comm, a.stream); }},
      {"ncclBcast", false, true, false, true,
       [](const Arguments& a) { return ncclBcast(a.recv, a.count, a.type, a.root, a.comm, a.stream); }},
      {"ncclAllGather", false, false, true, true,
       [](const Arguments& a) { return ncclAllGather(a.send, a.recv, a.count, a.type, a.comm, a.stream); }},
      {"ncclAlltoAll", false, false, true, true,
       [](const Arguments& a) { return ncclAlltoAll(a.send, a.recv, a.count, a.type, a.comm, a.stream); }},
      {"ncclGather", false, true, true, true,
       [](const Arguments& a) { return ncclGather(a.send, a.recv, a.count, a.type, a.root, a.comm, a.stream); }},
      {"ncclScatter", false, true, true, true,
       [](const Arguments& a) { return ncclScatter(a.send, a.recv, a.count, a.type, a.root, a.comm, a.stream); }},
      {"ncclSend", false, true, true, false,
       [](const Arguments& a) { return ncclSend(a.send, a.count, a.type, a.root, a.comm, a.stream); }},
      {"ncclRecv", false, true, false, true,
       [](const Arguments& a) { return ncclRecv(a.recv, a.count, a.type, a.root, a.comm, a.stream); }},
  };
  return all;
}

class Calls : public Pair {
 protected:
  /// Valid arguments for rank 0, which is the root.
  Arguments valid() {
    Arguments a;
    a.send = from_;
    a.recv = to_;
    a.comm = comms[0];
    return a;
  }
  /// Alone and in a group: the same code; the group's end returns it again, and the communicators stay usable.
  void expectRefused(const Function& function, const Arguments& a, ncclResult_t code, std::initializer_list<std::string_view> words) {
    SCOPED_TRACE(function.name);
    EXPECT_TRUE(refused(function.call(a), code, {function.name}));
    EXPECT_TRUE(refused(function.call(a), code, words));
    ASSERT_EQ(ncclGroupStart(), ok);
    EXPECT_TRUE(refused(function.call(a), code, words));
    EXPECT_TRUE(refused(ncclGroupEnd(), code, words)) << "the group's end";
    expectUsable();
  }
  float from_[64] = {};
  float to_[64] = {};
};

TEST_F(Calls, NullCommunicator) {
  for (const Function& f : functions()) {
    Arguments a = valid();
    a.comm = nullptr;
    expectRefused(f, a, ncclInvalidArgument, {"comm", "NULL"});
  }
}

// Memory of the caller's own, an odd address, an address of the library's own code: nothing is read through the pointer.
TEST_F(Calls, PointersThatAreNoCommunicator) {
  char garbage[256] = "this is not a communicator";
  for (const Function& f : functions()) {
    for (void* pointer : {static_cast<void*>(garbage), static_cast<void*>(garbage + 3), reinterpret_cast<void*>(0x10),
                          reinterpret_cast<void*>(~uintptr_t{0}), reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(comms[0]) + 1)}) {
      Arguments a = valid();
      a.comm = static_cast<ncclComm_t>(pointer);
      expectRefused(f, a, ncclInvalidArgument, {"comm"});
    }
  }
}

TEST_F(Calls, DestroyedCommunicator) {
  ncclComm_t dead = nullptr;
  ASSERT_EQ(ncclCommInitAll(&dead, 1, nullptr), ok);
  ASSERT_EQ(ncclCommDestroy(dead), ok);
  for (const Function& f : functions()) {
    Arguments a = valid();
    a.comm = dead;
    expectRefused(f, a, ncclInvalidArgument, {"comm", "destroyed"});
  }
  EXPECT_TRUE(refused(ncclCommDestroy(dead), ncclInvalidArgument, {"comm", "destroyed"}));
  EXPECT_EQ(ncclCommAbort(dead), ok) << "nothing left to do";
}

TEST_F(Calls, UnknownDatatype) {
  for (const Function& f : functions()) {
    for (const int type : {-1, 12, 13, 1000, INT_MAX, INT_MIN}) {
      Arguments a = valid();
      a.type = enumOf<ncclDataType_t>(type);
      expectRefused(f, a, ncclInvalidArgument, {"datatype", std::to_string(type), "11"});
    }
  }
}

TEST_F(Calls, UnknownOperation) {
  for (const Function& f : functions()) {
    if (!f.hasOp) continue;
    for (const int op : {-1, 5, 6, 1000, INT_MAX, INT_MIN}) {
      Arguments a = valid();
      a.op = enumOf<ncclRedOp_t>(op);
      expectRefused(f, a, ncclInvalidArgument, {"op ", std::to_string(op)});
    }
  }
}

TEST_F(Calls, RootOrPeerOutOfRange) {
  for (const Function& f : functions()) {
    if (!f.hasRoot) continue;
    for (const int root : {-1, 2, INT_MAX, INT_MIN}) {
      Arguments a = valid();
      a.root = root;
      const bool message = !f.hasOp && f.usesSend != f.usesRecv && std::string_view(f.name) != "ncclBcast";
      expectRefused(f, a, ncclInvalidArgument, {message ? "peer" : "root", std::to_string(root), "0 to 1"});
    }
  }
}

TEST_F(Calls, NullBuffersWithACount) {
  for (const Function& f : functions()) {
    if (f.usesSend) {
      Arguments a = valid();
      a.send = nullptr;
      a.root = f.name == std::string_view("ncclSend") ? 1 : 0;
      expectRefused(f, a, ncclInvalidArgument, {"sendbuff", "NULL"});
    }
    if (f.usesRecv) {
      Arguments a = valid();
      a.recv = nullptr;
      a.root = f.name == std::string_view("ncclRecv") ? 1 : 0;
      expectRefused(f, a, ncclInvalidArgument, {std::string_view(f.name) == "ncclBcast" ? "buff" : "recvbuff", "NULL"});
    }
  }
}

TEST_F(Calls, ACountWhoseBytesOverflowIsRefused) {
  for (const Function& f : functions()) {
    Arguments a = valid();
    a.count = SIZE_MAX / 2;
    a.root = 1;
    expectRefused(f, a, ncclInvalidArgument, {"count"});
  }
}

TEST_F(Calls, CountZeroNeedsNoBuffersAndNoPeer) {
  for (const Function& f : functions()) {
    const std::string_view name = f.name;
    if (name == "ncclSend" || name == "ncclRecv") continue;  // these pair with the peer's call
    Arguments a = valid();
    a.send = a.recv = nullptr;
    a.count = 0;
    for (ncclComm_t comm : comms) {
      a.comm = comm;
      EXPECT_EQ(f.call(a), ok) << f.name << ": " << ncclGetLastError(nullptr);
    }
    a.type = enumOf<ncclDataType_t>(99);
    EXPECT_EQ(f.call(a), ncclInvalidArgument) << f.name << ": the other arguments are still checked";
  }
  expectUsable();
}

TEST_F(Calls, StreamsThatAreNoHostStreams) {
  cudaStream_t dead = nullptr;
  ASSERT_EQ(tuttiStreamCreate(&dead), ok);
  ASSERT_EQ(tuttiStreamDestroy(dead), ok);
  char garbage[64] = {};
  for (const Function& f : functions()) {
    for (void* stream : {static_cast<void*>(dead), static_cast<void*>(garbage), reinterpret_cast<void*>(1), reinterpret_cast<void*>(2)}) {
      Arguments a = valid();
      a.root = 1;
      a.stream = static_cast<cudaStream_t>(stream);
      expectRefused(f, a, ncclInvalidArgument, {"stream"});
    }
  }
}

// Where several arguments are wrong, the first of comm, root, datatype, op counts.
TEST_F(Calls, ChecksComeInTheDocumentedOrder) {
  for (const Function& f : functions()) {
    SCOPED_TRACE(f.name);
    Arguments a;
    a.type = enumOf<ncclDataType_t>(77);
    a.op = enumOf<ncclRedOp_t>(-3);
    a.root = 9;
    EXPECT_TRUE(refused(f.call(a), ncclInvalidArgument, {"comm"}));
    a.comm = comms[0];
    if (f.hasRoot) {
      EXPECT_TRUE(refused(f.call(a), ncclInvalidArgument, {" 9 "}));
    }
    a.root = 1;
    EXPECT_TRUE(refused(f.call(a), ncclInvalidArgument, {"77"}));
    a.type = ncclInt;
    if (f.hasOp) {
      EXPECT_TRUE(refused(f.call(a), ncclInvalidArgument, {"-3"}));
    }
    a.op = ncclSum;
    EXPECT_TRUE(refused(f.call(a), ncclInvalidArgument, {"buff", "NULL"}));
  }
  expectUsable();
}

TEST_F(Calls, LoneSendOrRecvToOneselfIsRefused) {
  const int rank = 0;
  int x = 5, y = 0;
  EXPECT_TRUE(refused(ncclSend(&x, 1, ncclInt, rank, comms[0], nullptr), ncclInvalidUsage, {"itself"}));
  EXPECT_TRUE(refused(ncclRecv(&y, 1, ncclInt, rank, comms[0], nullptr), ncclInvalidUsage, {"itself"}));
  expectUsable();
  ASSERT_EQ(ncclGroupStart(), ok);
  ASSERT_EQ(ncclSend(&x, 1, ncclInt, rank, comms[0], nullptr), ok);
  ASSERT_EQ(ncclRecv(&y, 1, ncclInt, rank, comms[0], nullptr), ok);
  ASSERT_EQ(ncclGroupEnd(), ok) << ncclGetLastError(nullptr);
  EXPECT_EQ(y, 5);
  ASSERT_EQ(ncclGroupStart(), ok);
  ASSERT_EQ(ncclSend(&x, 1, ncclInt, rank, comms[0], nullptr), ok);
  EXPECT_TRUE(refused(ncclGroupEnd(), ncclInvalidUsage, {"itself"}));
  ASSERT_EQ(ncclGroupStart(), ok);
  int pair[2] = {1, 2};
  ASSERT_EQ(ncclSend(pair, 2, ncclInt, rank, comms[0], nullptr), ok);
  ASSERT_EQ(ncclRecv(&y, 1, ncclInt, rank, comms[0], nullptr), ok);
  EXPECT_TRUE(refused(ncclGroupEnd(), ncclInvalidUsage, {"8", "4"})) << "unequal sizes";
  expectUsable();
}

// One bad call spoils the group, not the communicators; nothing of the group runs.
TEST_F(Calls, AnErrorInAGroupStopsTheWholeGroup) {
  int values[2] = {1, 2};
  ASSERT_EQ(ncclGroupStart(), ok);
  ASSERT_EQ(ncclAllReduce(&values[0], &values[0], 1, ncclInt, ncclSum, comms[0], nullptr), ok);
  EXPECT_EQ(ncclBcast(&values[0], 1, ncclInt, 17, comms[0], nullptr), ncclInvalidArgument);
  ASSERT_EQ(ncclAllReduce(&values[1], &values[1], 1, ncclInt, ncclSum, comms[1], nullptr), ok);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_EQ(values[0], 1);
  EXPECT_EQ(values[1], 2);
  ncclResult_t state = ncclInternalError;
  EXPECT_EQ(ncclCommGetAsyncError(comms[0], &state), ok);
  EXPECT_EQ(state, ok);
  expectUsable();
}

// The end of an inner group does not end the outer one, nor its error.
TEST_F(Calls, AnErrorInAnInnerGroupFailsTheOutermostEnd) {
  ASSERT_EQ(ncclGroupStart(), ok);
  ASSERT_EQ(ncclGroupStart(), ok);
  EXPECT_EQ(ncclBcast(nullptr, 1, ncclInt, 0, comms[0], nullptr), ncclInvalidArgument);
  (void)ncclGroupEnd();
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_TRUE(refused(ncclGroupEnd(), ncclInvalidUsage, {"ncclGroupStart"})) << "both groups are closed";
  expectUsable();
}

}  // namespace
}  // namespace tutti::api_test::collectives_test
