#include "transport/device/segment_server.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <ctime>
#include <new>
#include <thread>
#include <vector>

#include "config/params.h"
#include "segment_play.h"

namespace tutti::transport::device::segment_server_test {
namespace {

using namespace play;
using memory::Shared;
using memory::ShareKind;

/// A file that holds `number`, as memory of a segment.
Result<Shared> fileWith(uint64_t number) {
  Shared shared;
  shared.ticket.kind = ShareKind::PosixFd;
  shared.ticket.bytes = number;
  shared.fd.reset(memfd_create("segment", MFD_CLOEXEC));
  if (!shared.fd || write(shared.fd.get(), &number, sizeof number) != sizeof number) return fail(Code::SystemError, "no memfd");
  return shared;
}

/// Devices 0: descriptors, 1: IPC tickets, 2: a long error, 3: no memory, others: an error.
Result<Shared> answer(int32_t device, memory::Place, uint64_t number) {
  if (device == 0) return fileWith(number);
  if (device == 2) return fail(Code::UnhandledCudaError, "{}", std::string(10'000, 'x'));
  if (device == 3) throw std::bad_alloc();
  if (device != 1) return fail(Code::InvalidArgument, "device {} has no segment {}", device, number);
  Shared shared;
  shared.ticket.kind = ShareKind::LegacyIpc;
  shared.ticket.bytes = number;
  shared.ticket.offset = 512;
  shared.ticket.handle.fill(7);
  return shared;
}

void expectServes(const ProcessKey& key, uint64_t number, milliseconds within = milliseconds(5000)) {
  const auto began = SteadyClock::now();
  const auto shared = fetchSegment({key, 0, memory::Place::Device, number}, milliseconds(5000));
  EXPECT_LT(since(began), within);
  ASSERT_TRUE(shared) << shared.error().text();
  EXPECT_EQ(shared->ticket.kind, ShareKind::PosixFd);
  EXPECT_EQ(shared->ticket.bytes, number);
  uint64_t read = 0;
  EXPECT_EQ(pread(shared->fd.get(), &read, sizeof read, 0), static_cast<ssize_t>(sizeof read));
  EXPECT_EQ(read, number);
}

TEST(SegmentServer, GivesTicketsDescriptorsAndErrors) {
  const NothingIsLeft check;
  SegmentServer server(answer);
  EXPECT_FALSE(server.serves());
  const auto key = server.start();
  ASSERT_TRUE(key) << key.error().text();
  EXPECT_TRUE(server.serves());
  expectServes(*key, 0x123456789abcdef0);
  const auto plain = fetchSegment({*key, 1, memory::Place::Device, 4096}, milliseconds(5000));
  ASSERT_TRUE(plain) << plain.error().text();
  EXPECT_EQ(plain->ticket.kind, ShareKind::LegacyIpc);
  EXPECT_EQ(plain->ticket.bytes, 4096u);
  EXPECT_EQ(plain->ticket.offset, 512u);
  EXPECT_EQ(plain->ticket.handle[63], 7);
  EXPECT_FALSE(plain->fd);
  const auto none = fetchSegment({*key, -5, memory::Place::Device, UINT64_MAX}, milliseconds(5000));
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code(), Code::InvalidArgument);
  EXPECT_NE(none.error().text().find("device -5 has no segment 18446744073709551615 [process " + std::to_string(getpid())),
            std::string::npos)
      << none.error().text();
  const auto wordy = fetchSegment({*key, 2, memory::Place::Device, 1}, milliseconds(5000));
  ASSERT_FALSE(wordy);
  EXPECT_EQ(wordy.error().code(), Code::UnhandledCudaError);
  EXPECT_NE(wordy.error().text().find(std::string(SegmentReply::kMostText, 'x')), std::string::npos);
}

TEST(SegmentServer, StartsOnceAndEndsWithItsOwner) {
  const NothingIsLeft check;
  ProcessKey gone;
  {
    SegmentServer first(answer);
    SegmentServer second(answer);
    gone = first.start().value();
    EXPECT_EQ(first.start().value(), gone);
    EXPECT_NE(second.start().value(), gone);
    EXPECT_TRUE(first.isOwn(gone));
    EXPECT_FALSE(second.isOwn(gone));
    expectServes(gone, 1);
  }
  const SegmentServer idle(answer);
  EXPECT_FALSE(idle.isOwn(ProcessKey{}));
  const auto began = SteadyClock::now();
  const auto refused = fetchSegment({gone, 0, memory::Place::Device, 1}, milliseconds(20'000));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::RemoteError);
  EXPECT_NE(refused.error().text().find("its process has ended"), std::string::npos) << refused.error().text();
  EXPECT_NE(refused.error().text().find("[get segment 1 of device 0 of another process within 20000 ms]"), std::string::npos);
  EXPECT_LT(since(began), milliseconds(2000));
}

TEST(SegmentServer, ItsThreadHasANameIfAskedFor) {
  const auto isNamed = [](const std::string& name) { return name == "tutti segments"; };
  for (const bool named : {false, true}) {
    (void)setenv("NCCL_SET_THREAD_NAME", named ? "1" : "0", 1);
    config::resetForTest();
    SegmentServer server(answer);
    ASSERT_TRUE(server.start());
    EXPECT_EQ(countThreads(isNamed), named ? 1u : 0u);
  }
  (void)unsetenv("NCCL_SET_THREAD_NAME");
  config::resetForTest();
}

/// Clients that do something wrong, each in its own way, and stay.
std::vector<UniqueFd> strangers(const ProcessKey& key, size_t count) {
  std::vector<UniqueFd> all;
  for (size_t i = 0; i < count; ++i) {
    UniqueFd fd = knock(key);
    EXPECT_TRUE(fd) << "stranger " << i << ": " << std::strerror(errno);
    SegmentRequest request;
    request.number = i;
    char bytes[3 * sizeof request] = {};
    std::memcpy(bytes, &request, sizeof request);
    size_t size = 0;
    switch (i % 6) {
      case 0: break;                                        // silent
      case 1: size = sizeof request / 2; break;             // half a request
      case 2: size = sizeof request + 1; break;             // more than one
      case 3: size = sizeof request, bytes[0] ^= 1; break;  // garbage
      case 4: size = sizeof request; break;                 // a good one whose answer is never read
      case 5: (void)shutdown(fd.get(), SHUT_WR); break;     // never says anything any more
      default: break;
    }
    if (size > 0) {
      EXPECT_EQ(send(fd.get(), bytes, size, MSG_NOSIGNAL), static_cast<ssize_t>(size));
    }
    all.push_back(std::move(fd));
  }
  return all;
}

TEST(SegmentServer, StrangersDelayNobody) {
  const NothingIsLeft check;
  SegmentServer server(answer);
  const ProcessKey key = server.start().value();
  for (int round = 0; round < 3; ++round) {
    const auto all = strangers(key, 120);
    for (uint64_t number = 1; number <= 20; ++number) expectServes(key, number, milliseconds(1000));
  }
  std::atomic<bool> stop{false};
  std::thread flood([&] {
    while (!stop) (void)strangers(key, 60);
  });
  for (uint64_t number = 1; number <= 20; ++number) expectServes(key, number, milliseconds(1000));
  stop = true;
  flood.join();
}

TEST(SegmentServer, SilentClientsAreDroppedAndAreNotMany) {
  const NothingIsLeft check;
  SegmentServer server(answer);
  const ProcessKey key = server.start().value();
  const size_t before = openDescriptors();
  expectServes(key, 1);
  std::vector<UniqueFd> silent;
  for (size_t i = 0; i < 3 * SegmentServer::kMostClients; ++i) silent.push_back(knock(key));
  expectServes(key, 2);
  EXPECT_LE(openDescriptors(), before + silent.size() + SegmentServer::kMostClients + 2) << "and what the last answer took";
  const auto began = SteadyClock::now();
  for (const UniqueFd& fd : silent) {
    pollfd ready{fd.get(), POLLIN, 0};
    ASSERT_EQ(poll(&ready, 1, 5000), 1);
    char byte = 0;
    EXPECT_EQ(recv(fd.get(), &byte, 1, 0), 0) << "closed";
  }
  EXPECT_LT(since(began), SegmentServer::kPatience + milliseconds(2000));
  EXPECT_TRUE(becomes([&] { return openDescriptors() == before + silent.size(); })) << openDescriptors();
}

milliseconds processorTime() {
  timespec used{};
  (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return milliseconds(used.tv_sec * 1000 + used.tv_nsec / 1'000'000);
}

TEST(SegmentServer, SleepsWhileNobodyAsks) {
  SegmentServer server(answer);
  const ProcessKey key = server.start().value();
  expectServes(key, 1);
  const UniqueFd silent = knock(key);
  const milliseconds before = processorTime();
  std::this_thread::sleep_for(milliseconds(400));
  EXPECT_LT(processorTime() - before, milliseconds(40));
}

TEST(SegmentServer, WithoutADescriptorLeftItSleepsAndGoesOn) {
  SegmentServer server(answer);
  const ProcessKey key = server.start().value();
  expectServes(key, 1);
  const UniqueFd client(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const SegmentAddress address(key);
  rlimit usual{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &usual), 0);
  const rlimit none{static_cast<rlim_t>(client.get()) + 1, usual.rlim_max};
  std::vector<UniqueFd> fillers;  // whatever number below the limit is free
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  for (int fd = dup(client.get()); fd >= 0; fd = dup(client.get())) fillers.emplace_back(fd);
  EXPECT_EQ(connect(client.get(), address.raw(), address.size()), 0);
  EXPECT_EQ(sendRequest(client.get(), {key, 1, memory::Place::Device, 5}), 0);
  const milliseconds before = processorTime();
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_LT(processorTime() - before, milliseconds(60));
  pollfd ready{client.get(), POLLIN, 0};
  EXPECT_EQ(poll(&ready, 1, 0), 0) << "it could not be let in";
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &usual), 0);
  ASSERT_EQ(poll(&ready, 1, 5000), 1);
  const auto reply = receiveReply(client.get());
  ASSERT_TRUE(reply && *reply);
  EXPECT_EQ((*reply)->ticket.bytes, 5u);
}

TEST(SegmentServer, AnAskThatFailsForWantOfMemoryEndsNothing) {
  const NothingIsLeft check;
  SegmentServer server(answer);
  const ProcessKey key = server.start().value();
  const auto failed = fetchSegment({key, 3, memory::Place::Device, 1}, milliseconds(100));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code(), Code::RemoteError);
  expectServes(key, 2);
}

TEST(SegmentServer, ManyAskAtOnce) {
  const NothingIsLeft check;
  SegmentServer server(answer);
  const ProcessKey key = server.start().value();
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      for (uint64_t round = 0; round < 250; ++round) expectServes(key, i * 1000 + round);
    });
  for (std::thread& thread : threads) thread.join();
}

/// Starts a server in a child, which says its key.
int serveAt(int socket, const SegmentServer::Ask& ask) {
  SegmentServer server(ask);
  const ProcessKey key = server.start().value();
  if (write(socket, &key, sizeof key) != static_cast<ssize_t>(sizeof key)) return 1;
  char end = 0;
  return read(socket, &end, 1) == 0 ? 0 : 2;
}

TEST(SegmentServer, AnswersOtherProcesses) {
  const NothingIsLeft check;
  Child child([](int socket) { return serveAt(socket, answer); });
  const auto key = child.receive<ProcessKey>();
  for (uint64_t number = 0; number < 100; ++number) expectServes(key, number);
  EXPECT_EQ(child.exitCode(), 0);
  EXPECT_EQ(fetchSegment({key, 0, memory::Place::Device, 1}, milliseconds(5000)).error().code(), Code::RemoteError);
}

TEST(SegmentServer, AProcessThatIsKilledIsGone) {
  const NothingIsLeft check;
  for (const bool whileAsked : {false, true}) {
    Child child([](int socket) {
      return serveAt(socket, [](int32_t, memory::Place, uint64_t) -> Result<Shared> {
        std::this_thread::sleep_for(std::chrono::seconds(60));
        return fail(Code::InternalError, "too late");
      });
    });
    const auto key = child.receive<ProcessKey>();
    if (!whileAsked) child.signal(SIGKILL);
    if (!whileAsked) (void)child.exitCode();
    std::thread killer([&] {
      std::this_thread::sleep_for(milliseconds(100));
      if (whileAsked) child.signal(SIGKILL);
    });
    const auto began = SteadyClock::now();
    const auto refused = fetchSegment({key, 0, memory::Place::Device, 1}, milliseconds(20'000));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), Code::RemoteError) << refused.error().text();
    EXPECT_NE(refused.error().text().find("has ended"), std::string::npos) << refused.error().text();
    EXPECT_LT(since(began), milliseconds(5000));
    killer.join();
  }
}

TEST(SegmentServer, AProcessThatStandsStillIsWaitedForUntilTheLimit) {
  const NothingIsLeft check;
  Child child([](int socket) { return serveAt(socket, answer); });
  const auto key = child.receive<ProcessKey>();
  child.stop();
  const auto began = SteadyClock::now();
  const auto refused = fetchSegment({key, 0, memory::Place::Device, 1}, milliseconds(200));
  EXPECT_GE(since(began), milliseconds(200));
  EXPECT_LT(since(began), milliseconds(2000));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::RemoteError);
  EXPECT_NE(refused.error().text().find("process " + std::to_string(child.pid()) + " does not answer in time"), std::string::npos)
      << refused.error().text();
  child.signal(SIGCONT);
  expectServes(key, 9);
}

TEST(SegmentServer, OtherUsersGetNothing) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can play another user";
  const NothingIsLeft check;
  Child child([](int socket) { return serveAt(socket, answer); });
  const auto key = child.receive<ProcessKey>();
  Child stranger([&](int) {
    if (setuid(65534) != 0) return 1;
    const auto refused = fetchSegment({key, 0, memory::Place::Device, 1}, milliseconds(5000));
    if (refused || refused.error().code() != Code::InvalidUsage) return 2;
    const UniqueFd rude = knock(key);  // does not look whom it asks
    if (!rude) return 3;
    (void)sendRequest(rude.get(), {key, 0, memory::Place::Device, 1});
    pollfd ready{rude.get(), POLLIN, 0};
    if (poll(&ready, 1, 5000) != 1) return 4;
    return receiveReply(rude.get()) ? 5 : 0;
  });
  EXPECT_EQ(stranger.exitCode(), 0);
  expectServes(key, 1);
  EXPECT_EQ(child.exitCode(), 0);
}

TEST(SegmentServer, AForkedChildBeginsAnew) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer lets no forked child of a process with threads start one";
#endif
  const NothingIsLeft check;
  SegmentServer server(answer);
  const ProcessKey key = server.start().value();
  Child child([&](int socket) {
    if (server.serves() || server.isOwn(key)) return 1;
    expectServes(key, 5);  // by the parent
    const auto own = server.start();
    if (!own || *own == key || !server.isOwn(*own) || server.isOwn(key)) return 2;
    expectServes(*own, 6);
    if (write(socket, &*own, sizeof *own) != static_cast<ssize_t>(sizeof *own)) return 3;
    char end = 0;
    if (read(socket, &end, 1) != 0) return 4;
    server.~SegmentServer();
    return 0;
  });
  const auto other = child.receive<ProcessKey>();
  expectServes(other, 7);
  expectServes(key, 8);
  EXPECT_TRUE(server.isOwn(key));
  EXPECT_EQ(child.exitCode(), 0);
  expectServes(key, 9);
}

}  // namespace
}  // namespace tutti::transport::device::segment_server_test
