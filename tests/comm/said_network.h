// A network that only says which devices it has.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/format.h"
#include "transport/net/network.h"

namespace tutti::comm {

class SaidNetwork final : public transport::net::Network {
 public:
  explicit SaidNetwork(std::vector<transport::net::Properties> all) : all_(std::move(all)) {}
  std::string_view name() const override { return "Said"; }
  int32_t devices() const override { return static_cast<int32_t>(all_.size()); }
  Result<transport::net::Properties> properties(int32_t device) const override {
    const transport::net::Properties& one = all_[static_cast<size_t>(device)];
    if (one.name.empty()) return fail(Code::SystemError, "device {} does not answer", device);
    return one;
  }
  Result<std::unique_ptr<transport::net::Listener>> listen(int32_t) override { return fail(Code::InternalError, "not asked for"); }
  Result<std::unique_ptr<transport::net::Connecting>> connect(int32_t, const transport::net::Handle&) override {
    return fail(Code::InternalError, "not asked for");
  }

 private:
  const std::vector<transport::net::Properties> all_;
};

inline transport::net::Properties saidNet(const std::string& name, uint64_t guid, int64_t speedMbps = 100'000) {
  transport::net::Properties made;
  made.name = name;
  made.guid = guid;
  made.speedMbps = speedMbps;
  made.port = 1;
  return made;
}

}  // namespace tutti::comm
