// A network address with its port, as it travels in ids and tables. A plain value; no state; any thread.
#pragma once

#include <sys/socket.h>

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::bootstrap {

struct Address {
  std::array<uint8_t, 16> bytes{};  ///< network order; IPv4 uses the first four
  uint16_t port = 0;                ///< host order
  bool isV6 = false;

  friend auto operator<=>(const Address&, const Address&) = default;
};

/// What an operating system calls it.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
};
SocketAddress toSocketAddress(const Address& address);
/// Nothing for families other than IPv4 and IPv6.
std::optional<Address> fromSocketAddress(const sockaddr& address);

bool isLoopback(const Address& address);
bool isLinkLocal(const Address& address);

/// "192.0.2.2:4000", "[2001:db8::1]:4000".
std::string describe(const Address& address);
/// The numeric forms "a.b.c.d" and "a:b::c", without port.
std::optional<Address> parseAddress(std::string_view text);

}  // namespace tutti::bootstrap
