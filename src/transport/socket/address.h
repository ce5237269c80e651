// An IPv4 or IPv6 address with a port. A plain value.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "core/status.h"

namespace tutti::transport::socket {

class Address {
 public:
  Address() = default;
  /// `ip` as inet_pton reads it, without brackets.
  static Result<Address> parse(std::string_view ip, uint16_t port);
  static Address v4(const in_addr& ip, uint16_t port);
  static Address v6(const in6_addr& ip, uint16_t port, uint32_t scope = 0);
  /// Of a sockaddr that the system filled in. InvalidArgument for other families.
  static Result<Address> of(const sockaddr* raw, socklen_t length);

  bool isV4() const { return raw_.any.sa_family == AF_INET; }
  bool isV6() const { return raw_.any.sa_family == AF_INET6; }
  bool isLinkLocal() const;
  uint16_t port() const { return ntohs(isV4() ? raw_.v4.sin_port : raw_.v6.sin6_port); }
  void setPort(uint16_t port) { (isV4() ? raw_.v4.sin_port : raw_.v6.sin6_port) = htons(port); }
  uint32_t scope() const { return isV6() ? raw_.v6.sin6_scope_id : 0; }
  void setScope(uint32_t scope) {
    if (isV6()) raw_.v6.sin6_scope_id = scope;
  }
  const in_addr& ip4() const { return raw_.v4.sin_addr; }
  const in6_addr& ip6() const { return raw_.v6.sin6_addr; }

  const sockaddr* raw() const { return &raw_.any; }
  socklen_t length() const { return isV4() ? sizeof raw_.v4 : sizeof raw_.v6; }
  int family() const { return raw_.any.sa_family; }
  /// "192.0.2.1:80", "[2001:db8::1]:80".
  std::string text() const;

 private:
  union Raw {
    sockaddr any;
    sockaddr_in v4;
    sockaddr_in6 v6{};
  };
  Raw raw_;
};

/// An address of this machine, and what carries it.
struct LocalAddress {
  std::string interface;  ///< "eth0"; addresses of one interface are one device
  Address address;        ///< the port does not count
  int64_t speedMbps = 0;  ///< 0: what sysfs says
};

}  // namespace tutti::transport::socket
