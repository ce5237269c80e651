// Whatever reads bytes of other processes: of src/bootstrap ids, greetings, frames, messages, and the texts of variables; the handles of
// sockets; what ranks wait for, and verdicts. The first byte chooses which. All-gathers: exchanges_fuzz.cc.
#include "fuzz/target.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "bootstrap/fixed_id.h"
#include "bootstrap/gathering.h"
#include "bootstrap/interfaces.h"
#include "bootstrap/messages.h"
#include "bootstrap/seal.h"
#include "bootstrap/unique_id.h"
#include "transport/local/waits_wire.h"
#include "transport/socket/handshake.h"

namespace tutti::fuzz {
namespace {

using namespace bootstrap;

void readId(std::span<const std::byte> bytes) {
  UniqueIdBytes raw{};
  std::memcpy(raw.data(), bytes.data(), std::min(bytes.size(), raw.size()));
  const auto id = UniqueId::decode(raw);
  if (!id) return;
  const auto again = UniqueId::decode(id->encode());
  promise(again && again->addresses == id->addresses && again->secret == id->secret && again->hash == id->hash, "an id comes back");
}

void readGreetingAndFrames(std::span<const std::byte> bytes) {
  if (bytes.size() >= Greeting::kBytes) {
    const auto greeting = Greeting::decode(bytes.first<Greeting::kBytes>());
    if (greeting) promise(std::ranges::equal(greeting->encode(), bytes.first<Greeting::kBytes>()), "a greeting comes back");
  }
  if (bytes.size() < kLengthBytes) return;
  const auto length = Opener::lengthOf(bytes.first<kLengthBytes>());
  promise(!length || *length <= kMostFrameBytes, "a frame is no longer than any may be");
  const Secret key{7};
  Opener opener(key);
  std::vector<std::byte> noise(bytes.begin(), bytes.end());
  promise(!opener.open(noise), "what nobody sealed stays shut");
  Sealer sealer(key);
  std::vector<std::byte> frame = sealer.seal(1, bytes);
  const auto opened = opener.open(std::span(frame).subspan(kLengthBytes));
  promise(opened && std::ranges::equal(opened->payload, bytes), "what was sealed opens");
}

void readMessages(std::span<const std::byte> bytes) {
  if (const auto enroll = decodeEnroll(bytes)) {
    promise(std::ranges::equal(encode(*enroll), bytes), "an enrolment comes back");
    Gathering gathering;
    (void)gathering.enroll(enroll->division, enroll->member, enroll->rank, enroll->note);
    (void)gathering.describeMissing();
  }
  if (const auto part = decodePart(bytes)) {
    promise(std::ranges::equal(encode(*part), bytes), "a part comes back");
    Gathering gathering;
    if (gathering.take(*part).ok() && gathering.isComplete())
      promise(decodeTable(encode(gathering.table())).has_value(), "a complete table can be read");
  }
  if (const auto table = decodeTable(bytes)) promise(std::ranges::equal(encode(*table), bytes), "a table comes back");
  (void)decodeWelcome(bytes);
  const Status trouble = decodeTrouble(bytes);
  promise(!trouble.ok() && !trouble.text().empty(), "trouble is never good news, and has words");
}

void readVariables(std::span<const std::byte> bytes) {
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::vector<Interface> all = {{"lo", *parseAddress("127.0.0.1"), true}, {"eth0", *parseAddress("10.0.0.1"), true}};
  if (const auto choice = chooseInterfaces(all, text, Family::Any)) promise(!choice->chosen().empty(), "a choice chooses something");
  const size_t colon = text.rfind(':');
  const std::string host = text.substr(0, std::min(colon, text.size()));
  const std::string bare = host.size() > 2 && host.front() == '[' ? host.substr(1, host.size() - 2) : host;
  if (parseAddress(bare)) (void)fixedId(text, text);  // names would ask a name server
}

void readHandle(std::span<const std::byte> bytes) {
  transport::net::Handle handle;
  std::memcpy(handle.bytes.data(), bytes.data(), std::min(bytes.size(), handle.bytes.size()));
  const auto invitation = transport::socket::decode(handle);
  if (!invitation) return promise(!invitation.error().text().empty(), "an error has words");
  const auto again = transport::socket::decode(transport::socket::encode(*invitation));
  promise(again && again->listenId == invitation->listenId && again->key == invitation->key &&
              again->addresses.size() == invitation->addresses.size(),
          "an invitation comes back");
}

/// What is accepted comes back as it was, whatever bytes said it first.
void readWaits(std::span<const std::byte> bytes) {
  using namespace transport::local;
  const std::span<const char> text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (const auto wait = decodeWait(text)) {
    (void)isWaitAmong(4, *wait);
    const std::string once = encodeWait(*wait);
    const auto again = decodeWait(once);
    promise(again && encodeWait(*again) == once, "a wait comes back");
  }
  if (const auto verdict = decodeVerdict(text)) {
    const std::string once = encodeVerdict(*verdict);
    const auto again = decodeVerdict(once);
    promise(again && encodeVerdict(*again) == once, "a verdict comes back");
  }
}

transport::local::RankWait sampleWait() {
  transport::local::RankWait wait;
  transport::local::ChainWait& chain = wait.chains.emplace_back();
  chain.call = {Collective::Reduce, DataType::F16, 3, 5, 77, 12, true};
  chain.slices = 2;
  chain.words = "waits for rank 2";
  chain.lanes.emplace_back().awaits = {Rank(2), Rank(7)};
  wait.sent = {1, 0, 2};
  return wait;
}

}  // namespace

void run(std::string_view input) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(input));
  if (bytes.empty() || !prepareCrypto().ok()) return;
  const std::span<const std::byte> rest = bytes.subspan(1);
  switch (std::to_integer<unsigned>(bytes.front()) % 6) {
    case 0: return readId(rest);
    case 1: return readGreetingAndFrames(rest);
    case 2: return readMessages(rest);
    case 3: return readVariables(rest);
    case 4: return readHandle(rest);
    default: return readWaits(rest);
  }
}

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  const auto addText = [&](unsigned which, std::string_view text) { all.push_back(static_cast<char>(which) + std::string(text)); };
  const auto add = [&](unsigned which, std::span<const std::byte> bytes) {
    addText(which, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
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
  for (const std::string_view text : {"^=eth0,lo", "192.0.2.1:80", "[::1]:65535"}) addText(3, text);
  transport::socket::Invitation invitation;
  for (const char* ip : {"192.0.2.7", "2001:db8::1"}) invitation.addresses.push_back(*transport::socket::Address::parse(ip, 4711));
  add(4, transport::socket::encode(invitation).bytes);
  addText(5, encodeWait(sampleWait()));
  transport::local::Verdict verdict;
  verdict.cause = error(Code::RemoteError, "rank 3 is gone");
  verdict.call = sampleWait().chains[0].call;
  verdict.missing = {Rank(3)};
  verdict.ranks = {{transport::local::RankReport::State::Waiting, 5, sampleWait()}, {}};
  addText(5, encodeVerdict(verdict));
  return all;
}

}  // namespace tutti::fuzz
