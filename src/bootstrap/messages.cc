#include "bootstrap/messages.h"

#include <algorithm>

#include "bootstrap/wire.h"

namespace tutti::bootstrap {
namespace {

constexpr size_t kLeastMemberBytes = 8 + 4 + 8 + 2 + 1;
constexpr size_t kEntryBytes = 4 + 4 + sizeof(Note);

void put(Writer& writer, const Address& address) {
  writer.number(static_cast<uint8_t>(address.isV6 ? 6 : 4));
  writer.number(address.port);
  writer.raw(std::as_bytes(std::span(address.bytes)).first(address.isV6 ? 16 : 4));
}

Address getAddress(Reader& reader) {
  Address address;
  const auto family = reader.number<uint8_t>();
  if (family != 4 && family != 6) reader.fail();
  address.isV6 = family == 6;
  address.port = reader.number<uint16_t>();
  const std::span<const std::byte> raw = reader.raw(address.isV6 ? 16 : 4);
  if (reader.ok()) std::memcpy(address.bytes.data(), raw.data(), raw.size());
  return address;
}

void put(Writer& writer, const Member& member) {
  writer.number(member.token);
  writer.number(member.pid);
  writer.number(member.hostIdentity);
  writer.text(std::string_view(member.hostName).substr(0, kMostNameBytes));
  const size_t addresses = std::min(member.addresses.size(), kMostAddresses);
  writer.number(static_cast<uint8_t>(addresses));
  for (const Address& address : std::span(member.addresses).first(addresses)) put(writer, address);
}

Member getMember(Reader& reader) {
  Member member;
  member.token = reader.number<uint64_t>();
  member.pid = reader.number<int32_t>();
  member.hostIdentity = reader.number<uint64_t>();
  member.hostName = reader.text(kMostNameBytes);
  const size_t addresses = reader.number<uint8_t>();
  if (addresses > kMostAddresses) reader.fail();
  for (size_t i = 0; i < addresses && reader.ok(); ++i) member.addresses.push_back(getAddress(reader));
  return member;
}

void put(Writer& writer, const Division& division) {
  writer.number(division.ranks);
  writer.number(division.ids);
  writer.number(division.index);
}

Division getDivision(Reader& reader) {
  Division division;
  division.ranks = reader.number<int32_t>();
  division.ids = reader.number<int32_t>();
  division.index = reader.number<int32_t>();
  if (division.ranks < 1 || division.ranks > kMostRanks || division.ids < 1 || division.ids > division.ranks || division.index < 0 ||
      division.index >= division.ids)
    reader.fail();
  return division;
}

void put(Writer& writer, const std::vector<Member>& members) {
  writer.number(static_cast<uint32_t>(members.size()));
  for (const Member& member : members) put(writer, member);
}

std::vector<Member> getMembers(Reader& reader, size_t most) {
  std::vector<Member> members(reader.count(kLeastMemberBytes, most));
  for (Member& member : members) member = getMember(reader);
  if (members.empty()) reader.fail();
  return members;
}

/// Fails when a member has no rank.
void checkMembersUsed(Reader& reader, const std::vector<bool>& isUsed) {
  if (std::find(isUsed.begin(), isUsed.end(), false) != isUsed.end()) reader.fail();
}

template <class Message>
std::optional<Message> finish(const Reader& reader, Message message) {
  if (!reader.atEnd()) return std::nullopt;
  return message;
}

}  // namespace

std::vector<std::byte> encode(const Enroll& message) {
  Writer writer;
  put(writer, message.division);
  writer.raw(message.firstId);
  put(writer, message.member);
  writer.number(message.rank);
  writer.raw(message.note);
  writer.number(message.setUpMs);
  return std::move(writer).take();
}

std::optional<Enroll> decodeEnroll(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  Enroll message;
  message.division = getDivision(reader);
  reader.raw(message.firstId);
  message.member = getMember(reader);
  message.rank = reader.number<int32_t>();
  reader.raw(message.note);
  message.setUpMs = reader.number<int64_t>();
  if (message.rank < 0 || message.rank >= message.division.ranks) reader.fail();
  return finish(reader, std::move(message));
}

std::vector<std::byte> encode(const Part& message) {
  Writer writer;
  writer.reserve(64 + message.members.size() * 128 + message.entries.size() * kEntryBytes);
  put(writer, message.division);
  put(writer, message.members);
  writer.number(static_cast<uint32_t>(message.entries.size()));
  for (const Part::Entry& entry : message.entries) {
    writer.number(entry.rank);
    writer.number(entry.member);
    writer.raw(entry.note);
  }
  return std::move(writer).take();
}

std::optional<Part> decodePart(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  Part message;
  message.division = getDivision(reader);
  message.members = getMembers(reader, static_cast<size_t>(kMostRanks));
  message.entries.resize(reader.count(kEntryBytes, static_cast<size_t>(std::max(message.division.ranks, 0))));
  std::vector<bool> isUsed(message.members.size());
  const auto members = static_cast<int32_t>(message.members.size());
  for (Part::Entry& entry : message.entries) {
    entry.rank = reader.number<int32_t>();
    entry.member = reader.number<int32_t>();
    reader.raw(entry.note);
    if (entry.rank < 0 || entry.rank >= message.division.ranks || entry.member < 0 || entry.member >= members) {
      reader.fail();
      break;
    }
    isUsed[static_cast<size_t>(entry.member)] = true;
  }
  checkMembersUsed(reader, isUsed);
  return finish(reader, std::move(message));
}

std::vector<std::byte> encode(const Table& message) {
  Writer writer;
  writer.reserve(64 + message.members.size() * 128 + message.notes.size() * (4 + sizeof(Note)));
  writer.number(message.number);
  writer.raw(message.key);
  writer.number(message.setUpMs);
  put(writer, message.members);
  writer.number(static_cast<uint32_t>(message.memberOf.size()));
  for (const int32_t member : message.memberOf) writer.number(member);
  for (const Note& note : message.notes) writer.raw(note);
  return std::move(writer).take();
}

std::optional<Table> decodeTable(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  Table message;
  message.number = reader.number<uint64_t>();
  reader.raw(message.key);
  message.setUpMs = reader.number<int64_t>();
  message.members = getMembers(reader, static_cast<size_t>(kMostRanks));
  message.memberOf.resize(reader.count(4 + sizeof(Note), static_cast<size_t>(kMostRanks)));
  int32_t seen = 0;  // members come in the order of their first rank
  for (int32_t& member : message.memberOf) {
    member = reader.number<int32_t>();
    if (member < 0 || member > seen) {
      reader.fail();
      break;
    }
    if (member == seen) ++seen;
  }
  if (static_cast<size_t>(seen) != message.members.size()) reader.fail();
  message.notes.resize(reader.ok() ? message.memberOf.size() : 0);
  for (Note& note : message.notes) reader.raw(note);
  return finish(reader, std::move(message));
}

std::vector<std::byte> encode(const Welcome& message) {
  Writer writer;
  writer.number(message.pid);
  writer.text(std::string_view(message.hostName).substr(0, kMostNameBytes));
  writer.number(message.rank);
  return std::move(writer).take();
}

std::optional<Welcome> decodeWelcome(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  Welcome message;
  message.pid = reader.number<int32_t>();
  message.hostName = reader.text(kMostNameBytes);
  message.rank = reader.number<int32_t>();
  return finish(reader, std::move(message));
}

std::vector<std::byte> encode(const Status& trouble) {
  Writer writer;
  writer.number(static_cast<int32_t>(trouble.code()));
  writer.text(std::string_view(trouble.text()).substr(0, kMostErrorBytes));
  return std::move(writer).take();
}

Status decodeTrouble(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  const auto code = reader.number<int32_t>();
  std::string text = reader.text(kMostErrorBytes);
  if (!reader.atEnd() || text.empty() || code <= static_cast<int32_t>(Code::Ok) || code >= static_cast<int32_t>(Code::InProgress))
    return error(Code::RemoteError, "another process failed and did not say why");
  return {static_cast<Code>(code), std::move(text)};
}

}  // namespace tutti::bootstrap
