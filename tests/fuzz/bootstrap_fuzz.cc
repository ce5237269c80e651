// libFuzzer's way into everything of src/bootstrap that reads bytes of others: ids, greetings, frames, messages, all-gathers, and the
// texts of variables. The first byte chooses which. Built where clang has its fuzzer (tests/fuzz/CMakeLists.txt); tests/fuzz/replay_test.cc
// runs the same function without it.
#include "bootstrap_fuzz.h"

#include <algorithm>
#include <cstring>

#include "bootstrap/fixed_id.h"
#include "bootstrap/gatherer.h"
#include "bootstrap/gathering.h"
#include "bootstrap/interfaces.h"
#include "bootstrap/messages.h"
#include "bootstrap/seal.h"
#include "bootstrap/unique_id.h"

namespace tutti::bootstrap::fuzz {
namespace {

void check(bool promise) {
  if (!promise) __builtin_trap();
}

void readId(std::span<const std::byte> bytes) {
  UniqueIdBytes raw{};
  std::memcpy(raw.data(), bytes.data(), std::min(bytes.size(), raw.size()));
  const auto id = UniqueId::decode(raw);
  if (!id) return;
  const auto again = UniqueId::decode(id->encode());
  check(again && again->addresses == id->addresses && again->secret == id->secret && again->hash == id->hash);
}

void readGreetingAndFrames(std::span<const std::byte> bytes) {
  if (bytes.size() >= Greeting::kBytes) {
    const auto greeting = Greeting::decode(bytes.first<Greeting::kBytes>());
    if (greeting) check(std::ranges::equal(greeting->encode(), bytes.first<Greeting::kBytes>()));
  }
  if (bytes.size() < kLengthBytes) return;
  const auto length = Opener::lengthOf(bytes.first<kLengthBytes>());
  check(!length || *length <= kMostFrameBytes);
  const Secret key{7};
  Opener opener(key);
  std::vector<std::byte> noise(bytes.begin(), bytes.end());
  check(!opener.open(noise));  // nobody sealed it
  Sealer sealer(key);
  std::vector<std::byte> frame = sealer.seal(1, bytes);
  const auto opened = opener.open(std::span(frame).subspan(kLengthBytes));
  check(opened && std::ranges::equal(opened->payload, bytes));
}

void readMessages(std::span<const std::byte> bytes) {
  if (const auto enroll = decodeEnroll(bytes)) {
    check(std::ranges::equal(encode(*enroll), bytes));
    Gathering gathering;
    (void)gathering.enroll(enroll->division, enroll->member, enroll->rank, enroll->note);
    (void)gathering.describeMissing();
  }
  if (const auto part = decodePart(bytes)) {
    check(std::ranges::equal(encode(*part), bytes));
    Gathering gathering;
    if (gathering.take(*part).ok() && gathering.isComplete()) check(decodeTable(encode(gathering.table())).has_value());
  }
  if (const auto table = decodeTable(bytes)) check(std::ranges::equal(encode(*table), bytes));
  (void)decodeWelcome(bytes);
  check(!decodeTrouble(bytes).ok());
}

/// Messages of others to the first process of five on two hosts.
void gather(std::span<const std::byte> bytes) {
  Membership all;
  all.hosts.resize(2);
  for (int32_t p = 0; p < 5; ++p) {
    all.processes.push_back({static_cast<uint64_t>(p), p, p % 2, {p}, {}});
    all.hosts[static_cast<size_t>(p % 2)].processes.push_back(p);
  }
  Gatherer gatherer(all, 0, [](int32_t, const std::vector<std::byte>&) {});
  gatherer.start({});
  while (bytes.size() > 2) {
    const size_t size = std::min(std::to_integer<size_t>(bytes[1]), bytes.size() - 2);
    (void)gatherer.take(std::to_integer<int32_t>(bytes[0]) % 5, bytes.subspan(2, size));
    bytes = bytes.subspan(2 + size);
  }
  check(gatherer.isComplete() == gatherer.waitsFor().empty());
  if (gatherer.isComplete()) check(gatherer.missing().empty());
}

void readVariables(std::span<const std::byte> bytes) {
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::vector<Interface> all = {{"lo", *parseAddress("127.0.0.1"), true}, {"eth0", *parseAddress("10.0.0.1"), true}};
  if (const auto choice = chooseInterfaces(all, text, Family::Any)) check(!choice->chosen.empty());
  const size_t colon = text.rfind(':');
  const std::string host = text.substr(0, std::min(colon, text.size()));
  const std::string bare = host.size() > 2 && host.front() == '[' ? host.substr(1, host.size() - 2) : host;
  if (parseAddress(bare)) (void)fixedId(text, text);  // names would ask a name server
}

}  // namespace

void run(std::span<const std::byte> bytes) {
  if (bytes.empty() || !prepareCrypto().ok()) return;
  const std::span<const std::byte> rest = bytes.subspan(1);
  switch (std::to_integer<unsigned>(bytes.front()) % 5) {
    case 0: return readId(rest);
    case 1: return readGreetingAndFrames(rest);
    case 2: return readMessages(rest);
    case 3: return gather(rest);
    default: return readVariables(rest);
  }
}

std::vector<std::vector<std::byte>> seeds() {
  std::vector<std::vector<std::byte>> all;
  const auto add = [&](unsigned which, std::span<const std::byte> bytes) {
    all.emplace_back(1, static_cast<std::byte>(which));
    all.back().insert(all.back().end(), bytes.begin(), bytes.end());
  };
  UniqueId id;
  id.addresses = {*parseAddress("192.0.2.1"), *parseAddress("2001:db8::1")};
  const UniqueIdBytes raw = id.encode();
  add(0, std::as_bytes(std::span(raw)));
  add(1, Greeting{Purpose::Mesh, 3, {}}.encode());
  const Member member{1, 2, 3, "host", id.addresses};
  const Member other{2, 2, 3, "host", {}};
  add(2, encode(Enroll{{8, 2, 1}, {}, member, 5, {}, 1000}));
  add(2, encode(Part{{3, 2, 1}, {member}, {{2, 0, {}}}}));
  Table table;
  table.members = {member, other};
  table.memberOf = {0, 1, 0};
  table.notes.resize(3);
  add(2, encode(table));
  add(2, encode(Welcome{1, "host", 2}));
  add(2, encode(error(Code::RemoteError, "text")));
  const std::vector<unsigned char> rounds = {2, 18, 0, 0, 2,  0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0,
                                             0, 0,  0, 1, 22, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 9};
  add(3, std::as_bytes(std::span(rounds)));
  for (const std::string_view text : {"^=eth0,lo", "192.0.2.1:80", "[::1]:65535"}) add(4, std::as_bytes(std::span(text)));
  return all;
}

}  // namespace tutti::bootstrap::fuzz

#if defined(TUTTI_LIBFUZZER)
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tutti::bootstrap::fuzz::run(std::as_bytes(std::span(data, size)));
  return 0;
}
#endif
