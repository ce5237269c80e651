// Endpoints of this process that are connecting. Whoever waits for one drives the others on: a thread that has several ranks may ask one of
// them alone until it is ready.
//
// Owner: the process (comm/devices.h). Any thread.
// 1. An endpoint is here from the moment its card is written until it is connected, has failed or goes.
#pragma once

#include <mutex>
#include <vector>

namespace tutti::transport::device {

class Endpoint;

class Connecting {
 public:
  void add(Endpoint& endpoint);
  /// Returns when nobody drives it any more.
  void remove(Endpoint& endpoint);
  void drive(const Endpoint& except);

 private:
  std::mutex mutex_;  ///< protects what follows; held while endpoints are driven
  std::vector<Endpoint*> endpoints_;
};

}  // namespace tutti::transport::device
