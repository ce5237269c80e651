#include "api/agreement_list.h"

#include <chrono>
#include <cstdlib>
#include <thread>

namespace tutti::api_test {
namespace {

constexpr size_t kHalf = size_t{48} << 20;
/// Large enough to be passed by reference: whoever sends it waits until it is read.
constexpr size_t kLarge = 100000;

char* memory() {
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  thread_local const std::unique_ptr<char, Free> buffer(static_cast<char*>(std::calloc(2 * kHalf, 1)));
  return buffer.get();
}

struct List {
  std::vector<Case> cases;
  /// Both roles: the calls of the two sides change places, too.
  void pair(const std::string& name, const Step& a, const Step& b, std::vector<std::string> quoted) {
    cases.push_back({name, {{a}, {b}}, false, quoted});
    cases.push_back({name + ", the other way round", {{b}, {a}}, false, quoted});
  }
  void add(std::string name, Program program, std::vector<std::string> quoted, bool grouped = false) {
    cases.push_back({std::move(name), std::move(program), grouped, std::move(quoted)});
  }
};

void addCollectives(List& list) {
  for (int a = 0; a < kCollectives; ++a)
    for (int b = a + 1; b < kCollectives; ++b)
      list.pair(std::string(kCollectiveNames[a]) + " against " + kCollectiveNames[b], collective(a, kLarge), collective(b, kLarge),
                {kCollectiveNames[a], kCollectiveNames[b]});
  for (int c = 0; c < kCollectives; ++c) {
    const std::string name = kCollectiveNames[c];
    list.pair(name + ", one element more", collective(c, kLarge), collective(c, kLarge + 1), {"100000", "100001"});
    list.pair(name + ", another type of the same size", collective(c, kLarge, ncclInt), collective(c, kLarge, ncclFloat),
              {"int32", "float"});
    if (c == 0 || c == 1 || c == 3)
      list.pair(name + ", another operation", collective(c, kLarge, ncclInt, ncclSum), collective(c, kLarge, ncclInt, ncclMin),
                {"sum", "min"});
    if (c == 1 || c == 2 || c >= 6)
      list.pair(name + ", another root", collective(c, kLarge, ncclInt, ncclSum, 0), collective(c, kLarge, ncclInt, ncclSum, 1),
                {"root 0", "root 1"});
  }
  const size_t base = size_t{1} << 24;
  for (const int c : {0, 1, 2})
    list.pair(std::string(kCollectiveNames[c]) + ", counts that are 2^24 apart", collective(c, 100, ncclInt8),
              collective(c, base + 100, ncclInt8), {"of 100 int8", "of 16777316 int8"});
}

void addMessages(List& list) {
  for (int c = 0; c < kCollectives; ++c) {
    const std::string name = kCollectiveNames[c];
    list.add("Send against " + name, {{send(1, kLarge)}, {collective(c, kLarge)}}, {"Send #0 of 100000 bytes to rank 1", name});
    list.add(name + " against Recv", {{collective(c, kLarge)}, {recv(0, 16)}}, {"Recv #0 of 16 bytes from rank 0", name});
    list.add("grouped Recv against " + name, {{recv(1, 16)}, {collective(c, kLarge)}}, {"Recv #0 of 16 bytes from rank 1", name}, true);
  }
  list.add("Send against Send", {{send(1, kLarge)}, {send(0, kLarge)}}, {"Send #0 of 100000 bytes to rank 1", "to rank 0"});
  list.add("Recv against Recv", {{recv(1, 8)}, {recv(0, 8)}}, {"Recv #0 of 8 bytes from rank 1", "from rank 0"});
  list.add("grouped Sends", {{send(1, kLarge), send(1, 8)}, {send(0, kLarge)}}, {"Send #0", "to rank 0", "to rank 1"}, true);
  list.add("grouped Recvs", {{recv(1, 8), recv(1, 9)}, {recv(0, 8)}}, {"Recv #0", "from rank 0", "from rank 1"}, true);
  list.add("a second Recv", {{send(1, 8), recv(1, 8)}, {recv(0, 8), recv(0, 8)}},
           {"Recv #0 of 8 bytes from rank 1", "Recv #1 of 8 bytes from rank 0"});
  for (const size_t bytes : {size_t{0}, size_t{16}, size_t{5000}, size_t{3000000}})
    list.add(
        "a Recv one byte longer than " + std::to_string(bytes), {{send(1, bytes), allReduce(1)}, {recv(0, bytes + 1), allReduce(1)}},
        {"Send #0 of " + std::to_string(bytes) + " bytes to rank 1", "Recv #0 of " + std::to_string(bytes + 1) + " bytes from rank 0"});
}

void addCircles(List& list) {
  for (const bool grouped : {false, true}) {
    for (const int n : {3, 4}) {
      Program sends, receives, away;
      for (int r = 0; r < n; ++r) {
        sends.push_back({send((r + 1) % n, kLarge), recv((r + n - 1) % n, kLarge)});
        receives.push_back({recv((r + n - 1) % n, 16), send((r + 1) % n, 16)});
        away.push_back({recv((r + 1) % n, 16)});
      }
      const std::string size = std::to_string(n) + (grouped ? " grouped ranks" : " ranks");
      if (!grouped) list.add("a circle of Sends, " + size, sends, {"Send #0", "to rank 0", "to rank 1"});
      if (!grouped) list.add("a circle of Recvs, " + size, receives, {"Recv #0", "from rank"});
      list.add("nobody sends, " + size, away, {"Recv #0", "from rank"}, grouped);
    }
    list.add("two in an AllReduce, the third in a Recv from either",
             {{allReduce(kLarge)}, {allReduce(kLarge)}, {recv(grouped ? 1 : 0, 16)}}, {"AllReduce #0", "Recv #0"}, grouped);
    list.add("two in a small AllReduce, the third in a Send", {{allReduce(1)}, {allReduce(1)}, {send(grouped ? 1 : 0, kLarge)}},
             {"AllReduce #0", "Send #0"}, grouped);
    list.add("an AllReduce in a group with a message that nobody takes",
             {{allReduce(8), send(1, kLarge), recv(1, 8)}, {recv(0, kLarge), recv(0, 8), allReduce(8)}}, {"Recv #1"}, true);
  }
  list.add("a Gather whose second sender waits for the root",
           {{collective(6, kLarge)}, {collective(6, kLarge)}, {recv(0, 16), collective(6, kLarge)}},
           {"Gather #0", "Recv #0 of 16 bytes from rank 0"});
}

void addOrders(List& list) {
  const Step broadcast = collective(2, 8);
  list.pair("one skips a call", allReduce(8), broadcast, {"AllReduce #0", "Broadcast #0"});
  list.add("swapped calls", {{allReduce(8), broadcast}, {broadcast, allReduce(8)}}, {"AllReduce", "Broadcast"});
  list.add("a skipped call in the middle", {{allReduce(8), allReduce(9), allReduce(10)}, {allReduce(8), allReduce(10)}},
           {"AllReduce #1 of 9 int32", "AllReduce #1 of 10 int32"});
  list.add("swapped in a group", {{allReduce(8), broadcast}, {broadcast, allReduce(8)}}, {"AllReduce", "Broadcast"}, true);
  list.add("a collective before a message, and after it", {{allReduce(8), send(1, kLarge)}, {recv(0, kLarge), allReduce(8)}},
           {"AllReduce #0", "Recv #0"});
  list.add("the same with a Send", {{send(1, kLarge), allReduce(8)}, {allReduce(8), recv(0, kLarge)}}, {"AllReduce #0", "Send #0"});
}

}  // namespace

char* inputMemory() { return memory(); }
char* outputMemory() { return memory() + kHalf; }

Step send(int peer, size_t bytes) {
  return {"Send", [=](ncclComm_t comm, cudaStream_t s) { return ncclSend(inputMemory(), bytes, ncclInt8, peer, comm, s); }};
}
Step recv(int peer, size_t bytes) {
  // Calls of a group run at the same time: what comes from each peer, and what collectives write, has a place of its own.
  const size_t place = (size_t{24} << 20) + static_cast<size_t>(peer) * (size_t{4} << 20);
  return {"Recv", [=](ncclComm_t comm, cudaStream_t s) { return ncclRecv(outputMemory() + place, bytes, ncclInt8, peer, comm, s); }};
}

Step collective(int collective, size_t count, ncclDataType_t type, ncclRedOp_t op, int root) {
  return {kCollectiveNames[collective], [=](ncclComm_t comm, cudaStream_t s) -> ncclResult_t {
            char* const in = inputMemory();
            char* const out = outputMemory();
            switch (collective) {
              case 0: return ncclAllReduce(in, out, count, type, op, comm, s);
              case 1: return ncclReduce(in, out, count, type, op, root, comm, s);
              case 2: return ncclBroadcast(in, out, count, type, root, comm, s);
              case 3: return ncclReduceScatter(in, out, count, type, op, comm, s);
              case 4: return ncclAllGather(in, out, count, type, comm, s);
              case 5: return ncclAlltoAll(in, out, count, type, comm, s);
              case 6: return ncclGather(in, out, count, type, root, comm, s);
              default: return ncclScatter(in, out, count, type, root, comm, s);
            }
          }};
}
Step allReduce(size_t count, ncclDataType_t type, ncclRedOp_t op) { return collective(0, count, type, op); }

Step sleepFor(int milliseconds) {
  return {"sleep", [=](ncclComm_t, cudaStream_t) {
            std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
            return ncclSuccess;
          }};
}

std::vector<Case> mismatches() {
  List list;
  addCollectives(list);
  addMessages(list);
  addCircles(list);
  addOrders(list);
  return std::move(list.cases);
}

/// The pauses are long enough for everybody else to publish its wait and to look for a deadlock many times.
std::vector<Case> legalOrders() {
  List list;
  const auto legal = [&](std::string name, Program program, bool grouped = false) {
    list.add(std::move(name), std::move(program), {}, grouped);
  };
  const Step late = sleepFor(60);
  for (int c = 0; c < kCollectives; ++c) {
    legal(std::string("a rank that is late for ") + kCollectiveNames[c], {
                                                                             {late, collective(c, kLarge)},
                                                                             {collective(c, kLarge)},
                                                                             {collective(c, kLarge), collective(c, 1)},
                                                                         });
    list.cases.back().program[0].push_back(collective(c, 1));
    list.cases.back().program[1].push_back(collective(c, 1));
  }
  legal("a Send that waits for its Recv", {{send(1, kLarge)}, {late, recv(0, kLarge)}});
  legal("a Recv that waits for its Send", {{late, send(1, kLarge)}, {recv(0, kLarge)}});
  legal("small messages cross", {{send(1, 16), late, recv(1, 16)}, {send(0, 16), recv(0, 16)}});
  legal("large messages take turns", {{send(1, kLarge), recv(1, kLarge)}, {recv(0, kLarge), late, send(0, kLarge)}});
  legal("large messages cross in a group", {{send(1, kLarge), recv(1, kLarge)}, {recv(0, kLarge), send(0, kLarge)}}, true);
  legal("a chain of messages whose first link is late",
        {{late, send(1, kLarge)}, {recv(0, kLarge), send(2, kLarge)}, {recv(1, kLarge), send(3, kLarge)}, {recv(2, kLarge)}});
  legal("a circle with one that receives first",
        {{send(1, kLarge), recv(2, kLarge)}, {recv(0, kLarge), late, send(2, kLarge)}, {recv(1, kLarge), send(0, kLarge)}});
  legal("messages and a collective in a group, in any order",
        {{allReduce(kLarge), send(1, kLarge), recv(1, 8)}, {recv(0, kLarge), allReduce(kLarge), send(0, 8)}}, true);
  legal("a collective before a small message that is taken after it", {{send(1, 16), allReduce(8)}, {late, allReduce(8), recv(0, 16)}});
  legal("a sender far ahead of its receiver", {std::vector<Step>(40, send(1, 64)), {late, late, late}});
  list.cases.back().program[1].insert(list.cases.back().program[1].end(), 40, recv(0, 64));
  legal("a root far ahead", {std::vector<Step>(30, collective(2, 8)), {late}, std::vector<Step>(30, collective(2, 8))});
  list.cases.back().program[1].insert(list.cases.back().program[1].end(), 30, collective(2, 8));
  // The root has read the first sender's part before the second one comes, which waits for a message of the first.
  legal("a Gather whose second sender waits for the first",
        {{late, collective(6, kLarge)}, {collective(6, kLarge), send(2, kLarge)}, {recv(1, kLarge), collective(6, kLarge)}});
  return std::move(list.cases);
}

}  // namespace tutti::api_test
