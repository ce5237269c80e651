#include "comm/handle.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

namespace tutti::comm::handle_test {
namespace {

/// Stands for a communicator: the table never looks at what it points to.
struct Object {
  std::atomic<bool> alive{true};
  Communicator* pointer() { return reinterpret_cast<Communicator*>(this); }
};

ncclComm* make(HandleTable& table, Object& object) {
  auto handle = table.make(object.pointer());
  EXPECT_TRUE(handle);
  return handle ? *handle : nullptr;
}

/// What ncclCommDestroy does to the table.
Communicator* destroy(HandleTable& table, ncclComm* handle) {
  HandleTable::Use use = table.use(handle);
  if (!use) return nullptr;
  Communicator* comm = table.retire(use);
  if (comm != nullptr) table.waitUnused(use);
  return comm;
}

TEST(HandleTable, AHandleLeadsToItsCommunicator) {
  HandleTable table;
  Object a, b;
  ncclComm* const first = make(table, a);
  ncclComm* const second = make(table, b);
  EXPECT_NE(first, second);
  EXPECT_EQ(&*table.use(first), a.pointer());
  EXPECT_EQ(&*table.use(second), b.pointer());
  EXPECT_EQ(table.live(), 2U);
  EXPECT_EQ(destroy(table, first), a.pointer());
  EXPECT_EQ(&*table.use(second), b.pointer());
  EXPECT_EQ(table.live(), 1U);
}

TEST(HandleTable, GarbageIsRefusedAndNotTouched) {
  HandleTable table;
  int local = 0;
  const auto refuses = [&](void* value) {
    auto* const handle = static_cast<ncclComm*>(value);
    EXPECT_FALSE(table.use(handle)) << value;
    EXPECT_FALSE(table.isRetired(handle)) << value;
  };
  for (int round = 0; round < 2; ++round) {  // without and with blocks
    refuses(nullptr);
    refuses(reinterpret_cast<void*>(1));
    refuses(reinterpret_cast<void*>(UINTPTR_MAX));
    refuses(reinterpret_cast<void*>(0xdeadbeefdeadbeef));
    refuses(&local);
    static Object object;
    if (round == 0) (void)make(table, object);
  }
}

TEST(HandleTable, ValuesBesideAHandleAreRefused) {
  HandleTable table;
  Object a;
  auto* const bytes = reinterpret_cast<std::byte*>(make(table, a));
  Visitor* const visitor = table.admit();
  ASSERT_NE(visitor, nullptr) << "does this kernel have membarrier?";
  for (const std::ptrdiff_t offset : {-64, -16, -1, 1, 8, 15, 16, 64, 1 << 20, 1 << 30}) {
    EXPECT_FALSE(table.use(reinterpret_cast<ncclComm*>(bytes + offset))) << offset;
    EXPECT_FALSE(HandleTable::Visit(*visitor, reinterpret_cast<ncclComm*>(bytes + offset))) << offset;
    EXPECT_FALSE(table.isRetired(reinterpret_cast<ncclComm*>(bytes + offset))) << offset;
  }
  EXPECT_TRUE(table.use(reinterpret_cast<ncclComm*>(bytes)));
}

TEST(HandleTable, AStaleHandleIsToldApart) {
  HandleTable table;
  Object a;
  ncclComm* const handle = make(table, a);
  EXPECT_FALSE(table.isRetired(handle));
  EXPECT_EQ(destroy(table, handle), a.pointer());
  EXPECT_TRUE(table.isRetired(handle));
  EXPECT_FALSE(table.use(handle));
  EXPECT_EQ(destroy(table, handle), nullptr);
  EXPECT_EQ(table.live(), 0U);
}

TEST(HandleTable, AFreedHandleRestsForALongWhileAndIsUsedAgainThen) {
  HandleTable table;
  Object a;
  ncclComm* const stale = make(table, a);
  destroy(table, stale);
  int others = 0;
  for (; others < 100000; ++others) {
    ncclComm* const next = make(table, a);
    if (next == stale) break;
    ASSERT_FALSE(table.use(stale));
    destroy(table, next);
  }
  EXPECT_GE(others, 4096) << "too soon";
  EXPECT_LT(others, 100000) << "never used again: the table would run full";
  EXPECT_TRUE(table.use(stale));
}

TEST(HandleTable, TheFirstToRetireGetsTheCommunicator) {
  HandleTable table;
  Object a;
  ncclComm* const handle = make(table, a);
  HandleTable::Use first = table.use(handle);
  {
    HandleTable::Use second = table.use(handle);
    EXPECT_EQ(table.retire(first), a.pointer());
    EXPECT_EQ(table.retire(second), nullptr);
    EXPECT_EQ(&*second, a.pointer()) << "a use from before stays good";
  }
  table.waitUnused(first);
}

TEST(HandleTable, AUseKeepsTheCommunicatorAlive) {
  HandleTable table;
  Object a;
  ncclComm* const handle = make(table, a);
  std::atomic<bool> released{false};
  auto held = std::make_unique<HandleTable::Use>(table.use(handle));
  std::thread destroyer([&] {
    EXPECT_EQ(destroy(table, handle), a.pointer());
    EXPECT_TRUE(released.load());
  });
  while (!table.isRetired(handle)) std::this_thread::yield();
  EXPECT_FALSE(table.use(handle)) << "no new use once it is retired";
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  released.store(true);
  held.reset();
  destroyer.join();
}

TEST(HandleTable, AMovedUseIsReleasedOnce) {
  HandleTable table;
  Object a;
  ncclComm* const handle = make(table, a);
  {
    HandleTable::Use use = table.use(handle);
    const HandleTable::Use moved = std::move(use);
    EXPECT_TRUE(moved);
    EXPECT_EQ(handle->users.load(), 1U);
  }
  EXPECT_EQ(handle->users.load(), 0U);
}

/// Threads use handles that others destroy and make again at the same time: nobody ever holds a dead one.
/// `makeUser(table)`: what a thread uses handles with.
template <class Make>
void useAndRetire(Make&& makeUser) {
  HandleTable table;
  constexpr size_t kObjects = 4;
  std::array<std::atomic<ncclComm*>, kObjects> handles{};
  std::vector<std::unique_ptr<Object>> objects;  // kept to the end, so that a dead one can be looked at
  std::mutex objectsMutex;
  const auto place = [&](size_t i) {
    auto object = std::make_unique<Object>();
    Object& ref = *object;
    {
      const std::lock_guard lock(objectsMutex);
      objects.push_back(std::move(object));
    }
    handles[i].store(make(table, ref));
  };
  for (size_t i = 0; i < kObjects; ++i) place(i);

  std::atomic<bool> stop{false};
  std::atomic<uint64_t> uses{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      const auto user = makeUser(table);
      for (size_t i = 0; !stop.load(std::memory_order_relaxed); i = (i + 1) % kObjects) {
        const auto use = user(handles[i].load());
        if (!use) continue;
        ASSERT_TRUE(reinterpret_cast<Object*>(&*use)->alive.load(std::memory_order_relaxed));
        uses.fetch_add(1, std::memory_order_relaxed);
        ASSERT_TRUE(reinterpret_cast<Object*>(&*use)->alive.load(std::memory_order_relaxed));
      }
    });
  }
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 2000; ++round) {
        const auto i = static_cast<size_t>((round + t) % static_cast<int>(kObjects));
        Communicator* const comm = destroy(table, handles[i].load());
        if (comm == nullptr) continue;  // the other thread was faster
        reinterpret_cast<Object*>(comm)->alive.store(false, std::memory_order_relaxed);
        place(i);
      }
    });
  }
  for (size_t t = 3; t < threads.size(); ++t) threads[t].join();
  while (uses.load() < 100) std::this_thread::yield();
  stop.store(true);
  for (size_t t = 0; t < 3; ++t) threads[t].join();
  EXPECT_EQ(table.live(), kObjects);
}

TEST(HandleTable, UseAndRetireAtTheSameTime) {
  useAndRetire([](HandleTable& table) { return [&table](ncclComm* handle) { return table.use(handle); }; });
}

TEST(HandleTable, VisitAndRetireAtTheSameTime) {
  useAndRetire([](HandleTable& table) {
    return [visitor = table.admit()](ncclComm* handle) { return HandleTable::Visit(*visitor, handle); };
  });
}

TEST(HandleTable, AVisitKeepsTheCommunicatorAlive) {
  HandleTable table;
  Object a;
  Object b;
  ncclComm* const handle = make(table, a);
  ncclComm* const other = make(table, b);
  Visitor* const visitor = table.admit();
  ASSERT_NE(visitor, nullptr);
  std::atomic<bool> released{false};
  auto held = std::make_unique<HandleTable::Visit>(*visitor, handle);
  ASSERT_TRUE(*held);
  EXPECT_EQ(&**held, a.pointer());
  EXPECT_EQ(destroy(table, other), b.pointer()) << "nobody visits this one";
  std::thread destroyer([&] {
    EXPECT_EQ(destroy(table, handle), a.pointer());
    EXPECT_TRUE(released.load());
  });
  while (!table.isRetired(handle)) std::this_thread::yield();
  Visitor* const another = table.admit();
  ASSERT_NE(another, visitor);
  EXPECT_FALSE(HandleTable::Visit(*another, handle)) << "no new visit once it is retired";
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  released.store(true);
  held.reset();
  destroyer.join();
  table.dismiss(visitor);
  EXPECT_EQ(table.admit(), visitor) << "what a thread has given back is used again";
}

TEST(HandleTable, WhoIsForkedVisitsNothing) {
  HandleTable table;
  Object a;
  ncclComm* const handle = make(table, a);
  Visitor* const visitor = table.admit();
  const HandleTable::Visit visit(*visitor, handle);
  table.forgetVisits();
  EXPECT_EQ(destroy(table, handle), a.pointer()) << "returns";
}

}  // namespace
}  // namespace tutti::comm::handle_test
