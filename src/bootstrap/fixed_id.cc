#include "bootstrap/fixed_id.h"

#include <netdb.h>

#include <algorithm>
#include <charconv>
#include <memory>

#include "bootstrap/seal.h"

namespace tutti::bootstrap {
namespace {

constexpr size_t kMostTried = 3;

std::span<const std::byte> bytesOf(const std::string& text) { return std::as_bytes(std::span(text)); }

Result<std::vector<Address>> resolve(const std::string& host, uint16_t port) {
  std::vector<Address> addresses;
  if (const auto numeric = parseAddress(host)) {
    addresses.push_back(*numeric);
  } else {
    addrinfo wanted{};
    wanted.ai_socktype = SOCK_STREAM;
    addrinfo* first = nullptr;
    if (const int problem = getaddrinfo(host.c_str(), nullptr, &wanted, &first); problem != 0)
      return fail(Code::SystemError, "NCCL_COMM_ID: the host {} is not known: {}", host, gai_strerror(problem));
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(first, freeaddrinfo);
    for (const addrinfo* entry = first; entry != nullptr && addresses.size() < kMostTried; entry = entry->ai_next) {
      if (const auto address = fromSocketAddress(*entry->ai_addr)) addresses.push_back(*address);
    }
  }
  if (addresses.empty()) return fail(Code::SystemError, "NCCL_COMM_ID: the host {} has no address", host);
  for (Address& address : addresses) address.port = port;
  return addresses;
}

}  // namespace

Result<UniqueId> fixedId(const std::string& where, const std::string& jobSecret) {
  const size_t colon = where.rfind(':');
  const bool isBracketed = !where.empty() && where.front() == '[';
  std::string host = where.substr(0, std::min(colon, where.size()));
  const bool isClosed = host.size() > 2 && host.back() == ']';
  uint16_t port = 0;
  const char* const end = where.data() + where.size();
  const char* const digits = colon == std::string::npos ? end : where.data() + colon + 1;
  const auto [rest, problem] = std::from_chars(digits, end, port);
  if (problem != std::errc() || rest != end || port == 0 || isBracketed != isClosed || host.empty() ||
      (!isBracketed && host.find(':') != std::string::npos))
    return fail(Code::InvalidArgument, "NCCL_COMM_ID is {}: it must be host:port or [v6]:port", where);
  if (isBracketed) host = host.substr(1, host.size() - 2);
  auto addresses = resolve(host, port);
  if (!addresses) return tl::unexpected(addresses.error());
  UniqueId id;
  id.isFixed = true;
  id.hash = hashNumber("fixed id", bytesOf(where));
  id.secret = derive(Secret{}, jobSecret.empty() ? "no secret of the job" : "secret of the job", bytesOf(jobSecret));
  id.addresses = std::move(*addresses);
  return id;
}

}  // namespace tutti::bootstrap
