#include "launch/nodes.h"

#include <fcntl.h>
#include <sched.h>

#include <cerrno>
#include <cstring>

#include "launch/links.h"

namespace tutti::launch {
namespace {

constexpr uint32_t kNetwork = (uint32_t{10} << 24) | (uint32_t{213} << 16);  // 10.213.0.0/24
constexpr int kPrefix = 24;
constexpr const char* kInterface = "eth0";
constexpr std::chrono::milliseconds kLinkTime{5000};

uint32_t numberOf(int node) { return kNetwork + static_cast<uint32_t>(node) + 1; }

Result<Descriptor> currentNamespace() {
  Descriptor current(open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!current) return fail(Code::SystemError, "/proc/self/ns/net: {}", std::strerror(errno));
  return current;
}

/// Addresses of IPv6 are ready at once, as there is nobody who could have the same. Advice: where /proc is read-only they take a second.
void skipAddressDetection() {
  for (const char* path : {"/proc/sys/net/ipv6/conf/all/accept_dad", "/proc/sys/net/ipv6/conf/default/accept_dad"}) {
    const Descriptor file(open(path, O_WRONLY | O_CLOEXEC));
    if (file) (void)!write(file.get(), "0", 1);
  }
}

/// In a new namespace afterwards.
Result<Descriptor> enterNew() {
  if (unshare(CLONE_NEWNET) != 0) {
    return fail(Code::SystemError, "no network namespace can be made: {}{}", std::strerror(errno),
                errno == EPERM ? "; --nodes needs root, and in a container the capability SYS_ADMIN" : "");
  }
  skipAddressDetection();
  if (Status status = bringUp("lo"); !status.ok()) return tl::unexpected(std::move(status));
  return currentNamespace();
}

Status enter(const Descriptor& network) {
  if (setns(network.get(), CLONE_NEWNET) == 0) return {};
  return error(Code::SystemError, "a network namespace cannot be entered: {}", std::strerror(errno));
}

/// From inside node 0: one wire to the only other node, or a bridge with a wire to each.
Status connect(const std::vector<Descriptor>& namespaces) {
  if (namespaces.size() == 2) return addWire(kInterface, kInterface, namespaces[1].get());
  TUTTI_TRY(addBridge(kInterface));
  for (size_t node = 1; node < namespaces.size(); ++node) {
    const std::string wire = format("wire{}", node);
    TUTTI_TRY(addWire(wire, kInterface, namespaces[node].get()));
    TUTTI_TRY(addToBridge(wire, kInterface));
    TUTTI_TRY(bringUp(wire));
  }
  return {};
}

Status build(int count, std::vector<Descriptor>& namespaces) {
  for (int node = 0; node < count; ++node) {
    Result<Descriptor> made = enterNew();
    if (!made) return made.error();
    namespaces.push_back(*std::move(made));
  }
  TUTTI_TRY(enter(namespaces[0]));
  TUTTI_TRY(connect(namespaces));
  for (int node = 0; node < count; ++node) {
    TUTTI_TRY(enter(namespaces[static_cast<size_t>(node)]));
    TUTTI_TRY(setAddress(kInterface, numberOf(node), kPrefix));
    TUTTI_TRY(bringUp(kInterface));
  }
  for (const Descriptor& network : namespaces) {
    TUTTI_TRY(enter(network));
    TUTTI_TRY(waitUntilRunning(kInterface, Deadline::after(kLinkTime)));
  }
  return {};
}

}  // namespace

std::string Nodes::addressOf(int node) {
  const uint32_t number = numberOf(node);
  return format("{}.{}.{}.{}", number >> 24, number >> 16 & 255, number >> 8 & 255, number & 255);
}

Result<Nodes> Nodes::make(int count) {
  const Result<Descriptor> home = currentNamespace();
  if (!home) return tl::unexpected(home.error());
  Nodes nodes;
  Status status = build(count, nodes.namespaces_);
  if (Status back = enter(*home); status.ok() && !back.ok()) status = std::move(back);
  if (!status.ok()) return tl::unexpected(std::move(status));
  return nodes;
}

}  // namespace tutti::launch
