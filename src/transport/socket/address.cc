#include "transport/socket/address.h"

#include <arpa/inet.h>

#include <cstring>

namespace tutti::transport::socket {

Address Address::v4(const in_addr& ip, uint16_t port) {
  Address address;
  address.raw_.v6 = {};
  address.raw_.v4.sin_family = AF_INET;
  address.raw_.v4.sin_addr = ip;
  address.raw_.v4.sin_port = htons(port);
  return address;
}

Address Address::v6(const in6_addr& ip, uint16_t port, uint32_t scope) {
  Address address;
  address.raw_.v6 = {};
  address.raw_.v6.sin6_family = AF_INET6;
  address.raw_.v6.sin6_addr = ip;
  address.raw_.v6.sin6_port = htons(port);
  address.raw_.v6.sin6_scope_id = scope;
  return address;
}

Result<Address> Address::parse(std::string_view ip, uint16_t port) {
  const std::string text(ip);
  in_addr four{};
  in6_addr six{};
  if (inet_pton(AF_INET, text.c_str(), &four) == 1) return v4(four, port);
  if (inet_pton(AF_INET6, text.c_str(), &six) == 1) return v6(six, port);
  return fail(Code::InvalidArgument, "\"{}\" is no IP address", ip);
}

Result<Address> Address::of(const sockaddr* raw, socklen_t length) {
  Address address;
  if (raw != nullptr && raw->sa_family == AF_INET && length >= sizeof(sockaddr_in)) {
    std::memcpy(&address.raw_.v4, raw, sizeof(sockaddr_in));
  } else if (raw != nullptr && raw->sa_family == AF_INET6 && length >= sizeof(sockaddr_in6)) {
    std::memcpy(&address.raw_.v6, raw, sizeof(sockaddr_in6));
  } else {
    return fail(Code::InvalidArgument, "an address is neither IPv4 nor IPv6");
  }
  return address;
}

bool Address::isLinkLocal() const { return isV6() && IN6_IS_ADDR_LINKLOCAL(&raw_.v6.sin6_addr); }

std::string Address::text() const {
  char ip[INET6_ADDRSTRLEN] = "?";
  if (isV4()) {
    inet_ntop(AF_INET, &raw_.v4.sin_addr, ip, sizeof ip);
    return format("{}:{}", ip, port());
  }
  inet_ntop(AF_INET6, &raw_.v6.sin6_addr, ip, sizeof ip);
  return format("[{}]:{}", ip, port());
}

}  // namespace tutti::transport::socket
