#include "bootstrap/tree.h"

#include <algorithm>

namespace tutti::bootstrap {
namespace {

const HostInfo& hostOf(const Membership& all, int32_t process) {
  return all.hosts[static_cast<size_t>(all.processes[static_cast<size_t>(process)].host)];
}

}  // namespace

std::vector<int32_t> binomialChildren(int32_t place, int32_t size) {
  std::vector<int32_t> children;
  for (int64_t bit = 1; place + bit < size && (place & bit) == 0; bit <<= 1) children.push_back(static_cast<int32_t>(place + bit));
  std::reverse(children.begin(), children.end());
  return children;
}

int32_t placeInHost(const Membership& all, int32_t process) {
  const std::vector<int32_t>& local = hostOf(all, process).processes;
  return static_cast<int32_t>(std::lower_bound(local.begin(), local.end(), process) - local.begin());
}

int32_t treeParent(const Membership& all, int32_t process) {
  if (const int32_t place = placeInHost(all, process); place > 0)
    return hostOf(all, process).processes[static_cast<size_t>(binomialParent(place))];
  const int32_t host = binomialParent(all.processes[static_cast<size_t>(process)].host);
  return host < 0 ? -1 : all.hosts[static_cast<size_t>(host)].processes.front();
}

std::vector<int32_t> treeChildren(const Membership& all, int32_t process) {
  std::vector<int32_t> children;
  const int32_t place = placeInHost(all, process);
  if (place == 0) {
    const int32_t host = all.processes[static_cast<size_t>(process)].host;
    for (const int32_t child : binomialChildren(host, static_cast<int32_t>(all.hosts.size())))
      children.push_back(all.hosts[static_cast<size_t>(child)].processes.front());
  }
  const std::vector<int32_t>& local = hostOf(all, process).processes;
  for (const int32_t child : binomialChildren(place, static_cast<int32_t>(local.size())))
    children.push_back(local[static_cast<size_t>(child)]);
  return children;
}

}  // namespace tutti::bootstrap
