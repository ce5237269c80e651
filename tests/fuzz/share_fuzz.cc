// What processes of a host hand each other: descriptors over Unix sockets, answers about segments of scratch, the file of the memory that
// they share, with the hub in it, and tables of exported memory. The input is a letter that says which, and the bytes of a message, or
// changes of words in what another process wrote.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "core/descriptor_message.h"
#include "fuzz/target.h"
#include "memory/exports.h"
#include "transport/device/segment_wire.h"
#include "transport/local/hub.h"

namespace tutti::fuzz {
namespace {

using transport::local::Arena;
using transport::local::Hub;

constexpr size_t kMostDescriptors = 3;
constexpr uint64_t kPage = 4096;

/// Two ends of a Unix socket.
struct Pair {
  explicit Pair(int type) {
    std::array<int, 2> ends{};
    promise(socketpair(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0, "there are descriptors");
    here.reset(ends[0]);
    there.reset(ends[1]);
  }
  UniqueFd here;
  UniqueFd there;
};

int lowestFree() { return UniqueFd(fcntl(0, F_DUPFD_CLOEXEC, 0)).get(); }

/// Sends `bytes` with so many descriptors.
void sendWith(int socket, std::string_view bytes, size_t descriptors) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> room{};
  const std::array<int, kMostDescriptors> all = {0, 0, 0};
  iovec data{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (descriptors > 0) {
    message.msg_control = room.data();
    message.msg_controllen = CMSG_SPACE(descriptors * sizeof(int));
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(descriptors * sizeof(int));
    std::memcpy(CMSG_DATA(head), all.data(), descriptors * sizeof(int));
  }
  (void)sendmsg(socket, &message, MSG_NOSIGNAL);
}

/// Whoever gets something closes it; nothing else stays open.
template <class Receive>
void receive(int type, std::string_view text, Receive&& take) {
  if (text.empty()) return;
  const int before = lowestFree();
  {
    const Pair sockets(type);
    const size_t descriptors = static_cast<unsigned char>(text[0]) % (kMostDescriptors + 1);
    sendWith(sockets.there.get(), text.substr(1), descriptors);
    take(sockets.here.get(), descriptors);
  }
  promise(lowestFree() == before, "no descriptor that came stays open");
}

void readDescriptor(std::string_view text) {
  receive(SOCK_STREAM, text, [&](int socket, size_t descriptors) {
    const auto came = receiveDescriptor(socket, "memory");
    promise(came.has_value() == (descriptors == 1 && text.size() > 1), "one descriptor is taken, and no other number of them");
    if (!came) promise(came.error().text().find("memory") != std::string::npos, "an error says what is missing");
  });
}

void readReply(std::string_view text) {
  using namespace transport::device;
  receive(SOCK_SEQPACKET, text, [&](int socket, size_t descriptors) {
    const auto reply = receiveReply(socket);
    if (!reply || !*reply) return;
    promise(text.size() - 1 >= sizeof(SegmentReply), "an answer has its size");
    const bool needs = memory::hasDescriptor((*reply)->ticket.kind);
    promise(static_cast<bool>((*reply)->fd) == needs && (!needs || descriptors == 1), "a ticket has its descriptor");
  });
}

void readRequest(std::string_view text) {
  using namespace transport::device;
  receive(SOCK_SEQPACKET, text, [&](int socket, size_t) {
    SegmentRequest request;
    const bool isOne = receiveRequest(socket, &request) == Heard::Request;
    promise(!isOne || text.size() - 1 == sizeof request, "a request has its size");
  });
}

/// Changes: which of `regions`, the number of a word in it, its value.
void change(std::span<const std::span<std::byte>> regions, std::string_view text) {
  constexpr size_t kBytes = 1 + 2 + 8;
  for (; text.size() >= kBytes; text.remove_prefix(kBytes)) {
    const auto region = regions[static_cast<unsigned char>(text[0]) % regions.size()];
    uint16_t word = 0;
    std::memcpy(&word, text.data() + 1, sizeof word);
    const size_t words = region.size() / sizeof(uint64_t);
    if (words > 0) std::memcpy(region.data() + word % words * sizeof(uint64_t), text.data() + 3, sizeof(uint64_t));
  }
}

/// The file of two processes with two ranks each, and the hub in it, as process 1 laid it out and changed it afterwards.
void attach(std::string_view text) {
  constexpr int32_t kRanks = 4;
  constexpr uint64_t kListHead = 2 * sizeof(uint64_t);
  const std::vector<int32_t> processOf = {0, 1, 0, 1};
  auto file = Arena::createFile();
  promise(file.has_value(), "there is memory to share");
  const auto first = Arena::attach(file->get(), nullptr, {0, 1}, -1);
  promise(first.has_value(), "what was made can be attached");
  const auto place = Hub::format(**first, 7, processOf);
  promise(place.has_value(), "a hub can be laid out");
  (*first)->root().store(*place, std::memory_order_release);
  uint64_t page = 0;
  {
    const auto hub = Hub::attach(*first, *place, kRanks);
    promise(hub && (*hub)->block({1, 2, 3, 4}, Bytes(100)), "a block can be made");
    (*hub)->release({1, 2, 3, 4});
    page = *place + 16 * kPage;  // anything behind the hub's head
  }
  auto control = memory::Mapping::ofFile(file->get(), 0, Bytes(2 * kPage));
  auto head = memory::Mapping::ofFile(file->get(), *place, Bytes(2 * kPage));
  promise(control && head, "a file can be mapped");
  constexpr size_t kAfterMutex = (sizeof(transport::local::SharedMutex) + 7) / 8 * 8;
  std::memcpy(&page, head->data() + kAfterMutex + 2 * sizeof(uint64_t), sizeof page);
  auto list = memory::Mapping::ofFile(file->get(), page, Bytes(kPage));
  promise(list.has_value(), "a list can be mapped");
  // What is listed is believed: these processes write into each other's blocks. Where they lie, and for whom, is looked at.
  const std::array<std::span<std::byte>, 4> regions = {
      std::span(control->data(), 2 * kPage), std::span(head->data() + kAfterMutex, 3 * sizeof(uint64_t)),
      std::span(head->data() + kPage, processOf.size() * sizeof(int32_t)), std::span(list->data(), kListHead)};
  change(regions, text);
  const auto arena = Arena::attach(file->get(), nullptr, {0, 1}, 0);
  if (!arena) return promise(!arena.error().text().empty(), "an error has words");
  (void)(*arena)->isComplete();
  (void)(*arena)->isAlive(1);
  const auto hub = Hub::attach(*arena, (*arena)->root().load(std::memory_order_acquire), kRanks);
  if (!hub) return promise(!hub.error().text().empty(), "an error has words");
  for (int32_t r = 0; r < kRanks; ++r) {
    promise((*hub)->processOf(Rank(r)) >= 0, "a rank is in a process");
    if ((*hub)->isHere(Rank(r))) promise((*hub)->isOnHost(Rank(r)), "what is here is on this host");
  }
  if ((*hub)->block({5, 6, 7, 8}, Bytes(3 * kPage))) (*hub)->release({5, 6, 7, 8});
  (void)(*hub)->existing({1, 2, 3, 4});
}

/// The table of a process, this one, with a region of two pages in it, as changed.
void import(std::string_view text) {
  constexpr uint64_t kBytes = 2 * kPage;
  auto table = memory::ExportTable::create();
  auto region = memory::Mapping::shareable(Bytes(kBytes));
  promise(table && region, "there is memory to share");
  table->add(region->data(), Bytes(kBytes), region->fd());
  auto list = memory::Mapping::ofFile(table->fd(), 0, Bytes(sizeof(memory::ExportList)));
  promise(list.has_value(), "a table can be mapped");
  const std::array<std::span<std::byte>, 1> regions = {
      std::span(list->data(), offsetof(memory::ExportList, entries) + 2 * sizeof(memory::Export))};
  const size_t asks = std::min<size_t>(text.size(), 16);
  std::array<uint64_t, 2> asked{};
  std::memcpy(asked.data(), text.data(), asks);
  change(regions, text.substr(asks));
  auto there = memory::ImportTable::open(getpid(), table->fd());
  promise(there.has_value(), "the own table can be opened");
  const auto base = reinterpret_cast<uint64_t>(region->data());
  for (const uint64_t address : {base + asked[0], asked[0]}) {
    std::byte* const found = there->find(address, asked[1]);
    if (found == nullptr || asked[1] == 0) continue;
    const volatile std::byte* const bytes = found;
    (void)bytes[0];
    (void)bytes[asked[1] - 1];  // they are there
  }
}

}  // namespace

void run(std::string_view input) {
  if (input.empty()) return;
  const std::string_view rest = input.substr(1);
  switch (input.front()) {
    case 'd': return readDescriptor(rest);
    case 'r': return readReply(rest);
    case 'q': return readRequest(rest);
    case 'e': return import(rest);
    default: return attach(rest);
  }
}

namespace {

template <class T>
std::string bytesOf(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string changed(char region, uint16_t word, uint64_t value) { return region + bytesOf(word) + bytesOf(value); }

}  // namespace

std::vector<std::string> seeds() {
  using namespace transport::device;
  std::vector<std::string> all;
  for (char descriptors = 0; descriptors <= static_cast<char>(kMostDescriptors); ++descriptors) {
    for (const char* bytes : {"", "x", "xx"}) all.push_back('d' + (descriptors + std::string(bytes)));
    for (const memory::ShareKind kind : {memory::ShareKind::PosixFd, memory::ShareKind::Fabric}) {
      SegmentReply reply;
      reply.ticket.kind = kind;
      all.push_back('r' + (descriptors + bytesOf(reply)));
    }
    SegmentReply refusal;
    refusal.code = static_cast<int32_t>(Code::RemoteError);
    refusal.textBytes = 3;
    all.push_back('r' + (descriptors + bytesOf(refusal) + "why"));
    all.push_back('r' + (descriptors + bytesOf(refusal) + "wh"));
    all.push_back('q' + (descriptors + bytesOf(SegmentRequest())));
  }
  const uint64_t far = uint64_t{1} << 46;
  all.emplace_back("a");
  for (const uint64_t value : {uint64_t{0}, uint64_t{1}, kPage, far - kPage, far, ~uint64_t{4095}}) {
    for (uint16_t word = 0; word < 3; ++word) {
      all.push_back("a" + changed(0, word, value));  // mark, end, root
      all.push_back("a" + changed(1, word, value));  // id, holders and ranks, list
      all.push_back("a" + changed(2, word, value));  // processes of ranks
      all.push_back("a" + changed(3, word, value));  // next, count
    }
  }
  const std::string own = bytesOf(std::array<uint64_t, 2>{16, 100});
  all.push_back("e" + own);
  all.push_back("e" + bytesOf(std::array<uint64_t, 2>{16, ~uint64_t{0} - 8}));  // its end is before its beginning
  for (const uint64_t value : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 40, ~uint64_t{0}})
    for (uint16_t word = 0; word < 8; ++word) all.push_back("e" + own + changed(0, word, value));
  return all;
}

}  // namespace tutti::fuzz
