#include "launch/links.h"

#include <arpa/inet.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <thread>
#include <vector>

namespace tutti::launch {
namespace {

/// A netlink message under construction: a header, then attributes that may nest.
class Message {
 public:
  template <class Body>
  Message(uint16_t type, uint16_t flags, const Body& body) {
    nlmsghdr header{};
    header.nlmsg_type = type;
    header.nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | NLM_F_ACK | flags);
    append(&header, sizeof header);
    append(&body, sizeof body);
  }

  void add(uint16_t type, const void* data, size_t bytes) {
    const size_t at = open(type);
    append(data, bytes);
    close(at);
  }
  void add(uint16_t type, const std::string& text) { add(type, text.c_str(), text.size() + 1); }
  size_t open(uint16_t type) {
    const size_t at = bytes_.size();
    const rtattr attribute = {0, type};
    append(&attribute, sizeof attribute);
    return at;
  }
  void close(size_t at) { patch<unsigned short>(at, static_cast<unsigned short>(bytes_.size() - at)); }
  template <class Body>
  void addBody(const Body& body) {
    append(&body, sizeof body);
  }

  /// Sends it and waits for the kernel's word.
  Status send(std::string_view what) {
    patch<uint32_t>(0, static_cast<uint32_t>(bytes_.size()));
    const Descriptor socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    if (!socket) return error(Code::SystemError, "{}: {}", what, std::strerror(errno));
    char reply[4096];
    ssize_t bytes = -1;
    if (::send(socket.get(), bytes_.data(), bytes_.size(), 0) >= 0) bytes = recv(socket.get(), reply, sizeof reply, 0);
    if (bytes < static_cast<ssize_t>(sizeof(nlmsghdr) + sizeof(nlmsgerr)))
      return error(Code::SystemError, "{}: {}", what, std::strerror(errno));
    nlmsgerr answer;
    std::memcpy(&answer, reply + sizeof(nlmsghdr), sizeof answer);
    return answer.error == 0 ? Status() : error(Code::SystemError, "{}: {}", what, std::strerror(-answer.error));
  }

 private:
  void append(const void* data, size_t bytes) {
    const auto* first = static_cast<const char*>(data);
    bytes_.insert(bytes_.end(), first, first + bytes);
    bytes_.resize((bytes_.size() + NLMSG_ALIGNTO - 1) / NLMSG_ALIGNTO * NLMSG_ALIGNTO);
  }
  template <class T>
  void patch(size_t at, T value) {
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }

  std::vector<char> bytes_;
};

Result<ifinfomsg> linkOf(const std::string& name) {
  ifinfomsg link{};
  link.ifi_family = AF_UNSPEC;
  link.ifi_index = static_cast<int>(if_nametoindex(name.c_str()));
  if (link.ifi_index == 0) return fail(Code::SystemError, "interface {}: {}", name, std::strerror(errno));
  return link;
}

}  // namespace

Status addWire(const std::string& name, const std::string& peerName, int peer) {
  Message message(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, ifinfomsg{});
  message.add(IFLA_IFNAME, name);
  const size_t info = message.open(IFLA_LINKINFO);
  message.add(IFLA_INFO_KIND, std::string("veth"));
  const size_t data = message.open(IFLA_INFO_DATA);
  const size_t other = message.open(VETH_INFO_PEER);
  message.addBody(ifinfomsg{});
  message.add(IFLA_IFNAME, peerName);
  message.add(IFLA_NET_NS_FD, &peer, sizeof peer);
  message.close(other);
  message.close(data);
  message.close(info);
  return message.send(format("creating the wire {}", name));
}

Status addBridge(const std::string& name) {
  Message message(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, ifinfomsg{});
  message.add(IFLA_IFNAME, name);
  const size_t info = message.open(IFLA_LINKINFO);
  message.add(IFLA_INFO_KIND, std::string("bridge"));
  message.close(info);
  return message.send(format("creating the bridge {}", name));
}

Status addToBridge(const std::string& name, const std::string& bridge) {
  const Result<ifinfomsg> link = linkOf(name);
  const Result<ifinfomsg> master = linkOf(bridge);
  if (!link || !master) return link ? master.error() : link.error();
  Message message(RTM_NEWLINK, 0, *link);
  message.add(IFLA_MASTER, &master->ifi_index, sizeof master->ifi_index);
  return message.send(format("adding {} to {}", name, bridge));
}

Status bringUp(const std::string& name) {
  Result<ifinfomsg> link = linkOf(name);
  if (!link) return link.error();
  link->ifi_flags = IFF_UP;
  link->ifi_change = IFF_UP;
  return Message(RTM_NEWLINK, 0, *link).send(format("bringing up {}", name));
}

Status waitUntilRunning(const std::string& name, Deadline deadline) {
  const Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::memcpy(request.ifr_name, name.data(), std::min(name.size(), sizeof request.ifr_name - 1));
  for (;;) {
    if (ioctl(socket.get(), SIOCGIFFLAGS, &request) != 0) return error(Code::SystemError, "interface {}: {}", name, std::strerror(errno));
    if ((request.ifr_flags & IFF_RUNNING) != 0) return {};
    if (deadline.isOver()) return error(Code::SystemError, "interface {} does not come up", name);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Status setAddress(const std::string& name, uint32_t address, int prefix) {
  const Result<ifinfomsg> link = linkOf(name);
  if (!link) return link.error();
  ifaddrmsg body{};
  body.ifa_family = AF_INET;
  body.ifa_prefixlen = static_cast<uint8_t>(prefix);
  body.ifa_index = static_cast<uint32_t>(link->ifi_index);
  Message message(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, body);
  const uint32_t networkOrder = htonl(address);
  message.add(IFA_LOCAL, &networkOrder, sizeof networkOrder);
  message.add(IFA_ADDRESS, &networkOrder, sizeof networkOrder);
  return message.send(format("giving {} its address", name));
}

}  // namespace tutti::launch
