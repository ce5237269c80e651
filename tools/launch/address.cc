#include "launch/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>

#include "core/format.h"

namespace tutti::launch {
namespace {

Address makeAddress(const sockaddr* from, socklen_t size) {
  Address address;
  std::memcpy(&address.storage, from, size);
  address.size = size;
  return address;
}

/// Any address of this host, IPv6 and IPv4 together where there is IPv6.
Address anyAddress(int family, uint16_t port) {
  if (family == AF_INET6) {
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_addr = in6addr_any;
    any.sin6_port = htons(port);
    return makeAddress(reinterpret_cast<const sockaddr*>(&any), sizeof any);
  }
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_ANY);
  any.sin_port = htons(port);
  return makeAddress(reinterpret_cast<const sockaddr*>(&any), sizeof any);
}

/// -1 with errno set when the address is taken or there is no such family.
int tryListen(const Address& address) {
  Descriptor listener(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener) return -1;
  const int yes = 1;
  const int no = 0;
  if (address.family() != AF_UNIX) (void)setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (address.family() == AF_INET6) (void)setsockopt(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.size) != 0) return -1;
  if (listen(listener.get(), SOMAXCONN) != 0) return -1;
  return listener.release();
}

}  // namespace

std::string Address::text() const {
  if (family() == AF_UNIX) return format("the Unix socket @{}", reinterpret_cast<const sockaddr_un*>(&storage)->sun_path + 1);
  char host[INET6_ADDRSTRLEN] = "?";
  if (family() == AF_INET6) {
    const auto* ipv6 = reinterpret_cast<const sockaddr_in6*>(&storage);
    (void)inet_ntop(AF_INET6, &ipv6->sin6_addr, host, sizeof host);
    return format("[{}]:{}", static_cast<const char*>(host), ntohs(ipv6->sin6_port));
  }
  const auto* ipv4 = reinterpret_cast<const sockaddr_in*>(&storage);
  (void)inet_ntop(AF_INET, &ipv4->sin_addr, host, sizeof host);
  return format("{}:{}", static_cast<const char*>(host), ntohs(ipv4->sin_port));
}

std::array<uint16_t, kTries> portsOf(uint64_t jobHash) {
  std::array<uint16_t, kTries> ports;
  const uint64_t first = jobHash % kPorts;
  const uint64_t stride = 1 + (jobHash >> 32) % (kPorts / kTries);  // so small that the list never meets itself
  for (uint64_t i = 0; i < kTries; ++i) ports[i] = static_cast<uint16_t>(kFirstPort + (first + i * stride) % kPorts);
  return ports;
}

Address unixAddress(uint64_t jobHash, int number) {
  sockaddr_un local{};
  local.sun_family = AF_UNIX;
  const std::string name = format("tutti-{}-{:016x}-{}", geteuid(), jobHash, number);
  std::memcpy(local.sun_path + 1, name.data(), name.size());  // a leading NUL: abstract
  return makeAddress(reinterpret_cast<const sockaddr*>(&local), static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size()));
}

std::vector<Address> resolve(const std::vector<std::string>& hosts, const std::array<uint16_t, kTries>& ports, std::string& problem) {
  std::vector<Address> addresses;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  for (const std::string& host : hosts) {
    for (const uint16_t port : ports) {
      addrinfo* list = nullptr;
      if (const int code = getaddrinfo(host.c_str(), format("{}", port).c_str(), &hints, &list); code != 0) {
        problem = format("{}: {}", host, gai_strerror(code));
        break;
      }
      const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, freeaddrinfo);
      for (const addrinfo* item = list; item; item = item->ai_next) addresses.push_back(makeAddress(item->ai_addr, item->ai_addrlen));
    }
  }
  return addresses;
}

Result<Descriptor> listenFor(uint64_t jobHash, bool isOneHost, Address& address) {
  const auto ports = portsOf(jobHash);
  int problem = 0;
  for (int number = 0; number < kTries; ++number) {
    const uint16_t port = ports[static_cast<size_t>(number)];
    address = isOneHost ? unixAddress(jobHash, number) : anyAddress(AF_INET6, port);
    int listener = tryListen(address);
    if (listener < 0 && !isOneHost && errno != EADDRINUSE) {
      address = anyAddress(AF_INET, port);
      listener = tryListen(address);
    }
    if (listener >= 0) return Descriptor(listener);
    problem = errno;
  }
  return fail(Code::SystemError,
              "rank 0 can listen on none of the {} addresses of this job, such as {}: {}; set NCCL_COMM_ID to a free host:port", kTries,
              address.text(), std::strerror(problem));
}

bool isOfThisUser(int descriptor) {
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &size) != 0) return false;
  if (own.ss_family != AF_UNIX) return true;
  ucred peer{};
  size = sizeof peer;
  return getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

}  // namespace tutti::launch
