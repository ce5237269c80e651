#include "bootstrap/unique_id.h"

#include <algorithm>
#include <cstring>

#include "bootstrap/wire.h"

namespace tutti::bootstrap {
namespace {

constexpr uint64_t kMagic = 0x3264696974747574;  // "tuttiid2"
constexpr uint8_t kFixed = 1;
constexpr size_t kHeadBytes = 8 + 8 + 8 + 4 + 1 + 32 + 1;

constexpr size_t bytesOf(const Address& address) { return 1 + 2 + (address.isV6 ? 16 : 4); }

}  // namespace

size_t UniqueId::fitting() const {
  size_t count = 0;
  size_t left = UniqueIdBytes{}.size() - kHeadBytes;
  for (; count < addresses.size() && bytesOf(addresses[count]) <= left; ++count) left -= bytesOf(addresses[count]);
  return count;
}

UniqueIdBytes UniqueId::encode() const {
  const auto carried = std::span(addresses).first(fitting());
  Writer writer;
  writer.number(kMagic);
  writer.number(hash);
  writer.number(maker);
  writer.number(pid);
  writer.number(isFixed ? kFixed : uint8_t{0});
  writer.raw(secret);
  writer.number(static_cast<uint8_t>(carried.size()));
  for (const Address& address : carried) {
    writer.number(static_cast<uint8_t>(address.isV6 ? 6 : 4));
    writer.number(address.port);
    writer.raw(std::as_bytes(std::span(address.bytes)).first(address.isV6 ? 16 : 4));
  }
  UniqueIdBytes bytes{};
  std::memcpy(bytes.data(), writer.view().data(), writer.view().size());
  return bytes;
}

Result<UniqueId> UniqueId::decode(const UniqueIdBytes& bytes) {
  Reader reader(std::as_bytes(std::span(bytes)));
  const bool isOurs = reader.number<uint64_t>() == kMagic;
  UniqueId id;
  id.hash = reader.number<uint64_t>();
  id.maker = reader.number<uint64_t>();
  id.pid = reader.number<int32_t>();
  id.isFixed = (reader.number<uint8_t>() & kFixed) != 0;
  reader.raw(id.secret);
  for (size_t left = reader.number<uint8_t>(); isOurs && left > 0 && reader.ok(); --left) {
    Address address;
    const auto family = reader.number<uint8_t>();
    if (family != 4 && family != 6) reader.fail();
    address.isV6 = family == 6;
    address.port = reader.number<uint16_t>();
    const std::span<const std::byte> raw = reader.raw(address.isV6 ? 16 : 4);
    if (reader.ok()) std::memcpy(address.bytes.data(), raw.data(), raw.size());
    id.addresses.push_back(address);
  }
  if (!isOurs || !reader.ok()) return fail(Code::InvalidArgument, "the unique id was not made by ncclGetUniqueId of this library");
  return id;
}

Block blockAt(int32_t index, int32_t ranks, int32_t ids) {
  const int32_t larger = ranks % ids;
  const int32_t each = ranks / ids;
  return {index, index * each + std::min(index, larger), each + (index < larger ? 1 : 0)};
}

Block blockOf(int32_t rank, int32_t ranks, int32_t ids) {
  const int32_t larger = ranks % ids;
  const int32_t each = ranks / ids;
  const int32_t ofLarger = larger * (each + 1);  // ranks of the larger blocks
  return blockAt(rank < ofLarger ? rank / (each + 1) : larger + (rank - ofLarger) / each, ranks, ids);
}

}  // namespace tutti::bootstrap
