// Network namespaces on one bridge, as hosts of a network that a test can break. They take root and the `ip` command.
//
// Owner: the test. Names carry the process id of the test; the destructor removes what the constructor has made, and nothing else.
#pragma once

#include <string>

namespace tutti::faults {

class Networks {
 public:
  /// Hosts 0 to `hosts` - 1, each with eth0 at 10.214.0.1 and up, and running: on a busy machine the kernel takes a moment for that.
  explicit Networks(int hosts);
  ~Networks();
  Networks(const Networks&) = delete;
  Networks& operator=(const Networks&) = delete;

  /// Empty when all is there; otherwise what the system does not allow.
  const std::string& problem() const { return problem_; }
  /// Runs `command` in the namespace of the host. Whether it succeeded.
  bool run(int host, const std::string& command) const;
  /// Until eth0 of the host runs again; false after some seconds.
  bool awaitUp(int host) const;
  /// The calling process is on that host from now on. Before it has threads.
  bool enter(int host) const;

 private:
  std::string nameOf(const std::string& what) const { return prefix_ + what; }
  bool make(const std::string& command);

  const int hosts_;
  const std::string prefix_;
  std::string problem_;
};

}  // namespace tutti::faults
