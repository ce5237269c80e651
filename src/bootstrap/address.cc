#include "bootstrap/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "core/format.h"

namespace tutti::bootstrap {

SocketAddress toSocketAddress(const Address& address) {
  SocketAddress result;
  if (address.isV6) {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(address.port);
    std::memcpy(&v6.sin6_addr, address.bytes.data(), 16);
    std::memcpy(&result.storage, &v6, sizeof v6);
    result.size = sizeof v6;
  } else {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(address.port);
    std::memcpy(&v4.sin_addr, address.bytes.data(), 4);
    std::memcpy(&result.storage, &v4, sizeof v4);
    result.size = sizeof v4;
  }
  return result;
}

std::optional<Address> fromSocketAddress(const sockaddr& address) {
  Address result;
  if (address.sa_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &address, sizeof v4);
    std::memcpy(result.bytes.data(), &v4.sin_addr, 4);
    result.port = ntohs(v4.sin_port);
    return result;
  }
  if (address.sa_family != AF_INET6) return std::nullopt;
  sockaddr_in6 v6;
  std::memcpy(&v6, &address, sizeof v6);
  std::memcpy(result.bytes.data(), &v6.sin6_addr, 16);
  result.port = ntohs(v6.sin6_port);
  result.isV6 = true;
  return result;
}

bool isLoopback(const Address& address) {
  if (!address.isV6) return address.bytes[0] == 127;
  return std::all_of(address.bytes.begin(), address.bytes.end() - 1, [](uint8_t b) { return b == 0; }) && address.bytes[15] == 1;
}

bool isLinkLocal(const Address& address) {
  if (!address.isV6) return address.bytes[0] == 169 && address.bytes[1] == 254;
  return address.bytes[0] == 0xfe && (address.bytes[1] & 0xc0) == 0x80;
}

std::string describe(const Address& address) {
  char text[INET6_ADDRSTRLEN] = "?";
  (void)inet_ntop(address.isV6 ? AF_INET6 : AF_INET, address.bytes.data(), text, sizeof text);
  return address.isV6 ? format("[{}]:{}", text, address.port) : format("{}:{}", text, address.port);
}

std::optional<Address> parseAddress(std::string_view text) {
  const std::string terminated(text);
  Address address;
  if (inet_pton(AF_INET, terminated.c_str(), address.bytes.data()) == 1) return address;
  address.isV6 = true;
  if (inet_pton(AF_INET6, terminated.c_str(), address.bytes.data()) == 1) return address;
  return std::nullopt;
}

}  // namespace tutti::bootstrap
