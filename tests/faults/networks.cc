#include "faults/networks.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>

namespace tutti::faults {
namespace {

/// Without a word.
bool shell(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

}  // namespace

Networks::Networks(int hosts) : hosts_(hosts), prefix_("tutti-" + std::to_string(getpid()) + "-") {
  if (geteuid() != 0) {
    problem_ = "network namespaces take root";
    return;
  }
  const std::string bridge = nameOf("bridge");
  if (!make("ip netns add " + bridge) || !make("ip -n " + bridge + " link add br0 type bridge") ||
      !make("ip -n " + bridge + " link set br0 up"))
    return;
  for (int h = 0; h < hosts; ++h) {
    const std::string number = std::to_string(h);
    const std::string host = nameOf(number);
    const std::string port = "port" + number;
    for (const std::string& command :
         {"ip netns add " + host, "ip -n " + host + " link set lo up",
          "ip -n " + bridge + " link add " + port + " type veth peer name eth0 netns " + host,
          "ip -n " + bridge + " link set " + port + " master br0 up", "ip -n " + host + " addr add 10.214.0." + std::to_string(h + 1) +
          "/24 dev eth0", "ip -n " + host + " link set eth0 up"})
      if (!make(command)) return;
  }
  for (int h = 0; h < hosts && problem_.empty(); ++h)
    if (!awaitUp(h)) problem_ = "eth0 does not come up";
}

bool Networks::make(const std::string& command) {
  if (!shell(command)) problem_ = "not possible here: " + command;
  return problem_.empty();
}

Networks::~Networks() {
  for (int h = 0; h < hosts_; ++h) (void)shell("ip netns del " + nameOf(std::to_string(h)));
  (void)shell("ip netns del " + nameOf("bridge"));
}

bool Networks::run(int host, const std::string& command) const {
  return shell("ip netns exec " + nameOf(std::to_string(host)) + " " + command);
}

bool Networks::awaitUp(int host) const {
  const std::string look = "ip -n " + nameOf(std::to_string(host)) + " link show eth0 | grep -q 'state UP'";
  for (int tries = 0; tries < 500; ++tries) {
    if (shell(look)) return true;
    usleep(10'000);
  }
  return false;
}

bool Networks::enter(int host) const {
  const int fd = open(("/run/netns/" + nameOf(std::to_string(host))).c_str(), O_RDONLY | O_CLOEXEC);
  const bool isIn = fd >= 0 && setns(fd, CLONE_NEWNET) == 0;
  if (fd >= 0) close(fd);
  return isIn;
}

}  // namespace tutti::faults
