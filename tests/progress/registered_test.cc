// Over a network that moves registered memory alone, every message lies in what was registered for it, and all is taken back.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "linked.h"

namespace tutti::progress::registered_test {
namespace {

using transport::net::InMessage;
using transport::net::MemoryKey;
using transport::net::MemoryKind;
using transport::net::OutMessage;
using transport::net::Request;

/// What is registered, on both sides.
class Registrations {
 public:
  MemoryKey add(void* data, uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    regions_[++last_] = {static_cast<const std::byte*>(data), bytes};
    return {reinterpret_cast<void*>(last_)};
  }
  void remove(MemoryKey key) {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(regions_.erase(reinterpret_cast<uintptr_t>(key.token)), 1U);
  }
  void expectHolds(MemoryKey key, const std::byte* data, uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (bytes == 0) return;
    const auto region = regions_.find(reinterpret_cast<uintptr_t>(key.token));
    ASSERT_NE(region, regions_.end()) << "a message of " << bytes << " bytes without a registration";
    EXPECT_TRUE(data >= region->second.data && data + bytes <= region->second.data + region->second.bytes) << bytes << " bytes";
    ++checked_;
  }
  uint64_t checked() const { return checked_; }
  bool isEmpty() const { return regions_.empty(); }

 private:
  struct Region {
    const std::byte* data;
    uint64_t bytes;
  };
  std::mutex mutex_;
  std::map<uintptr_t, Region> regions_;
  uintptr_t last_ = 0;
  uint64_t checked_ = 0;
};

template <class Base>
class Registered : public Base {
 public:
  Registered(std::unique_ptr<Base> inner, Registrations& registrations) : inner_(std::move(inner)), registrations_(registrations) {}
  bool needsRegistration() const override { return true; }
  Result<MemoryKey> registerMemory(void* data, uint64_t bytes, MemoryKind) override { return registrations_.add(data, bytes); }
  void deregisterMemory(MemoryKey key) override { registrations_.remove(key); }
  transport::net::Tested test(Request request, uint64_t* bytes) override { return inner_->test(request, bytes); }
  Poll check() override { return inner_->check(); }
  void takeLeave() override { inner_->takeLeave(); }
  Status status() const override { return inner_->status(); }
  std::span<const int> descriptors() const override { return inner_->descriptors(); }
  std::string peerText() const override { return inner_->peerText(); }

 protected:
  std::unique_ptr<Base> inner_;
  Registrations& registrations_;
};

class RegisteredSend final : public Registered<transport::net::SendComm> {
 public:
  using Registered::Registered;
  size_t maxGather() const override { return inner_->maxGather(); }
  Poll isend(std::span<const OutMessage> messages, Request* request) override {
    for (const OutMessage& message : messages) registrations_.expectHolds(message.key, message.data, message.bytes);
    return inner_->isend(messages, request);
  }
  std::optional<bool> isUnderWay() const override { return inner_->isUnderWay(); }
};

class RegisteredRecv final : public Registered<transport::net::RecvComm> {
 public:
  using Registered::Registered;
  Poll irecv(const InMessage& message, Request* request) override {
    registrations_.expectHolds(message.key, message.data, message.capacity);
    return inner_->irecv(message, request);
  }
};

class RegisteredListener final : public transport::net::Listener {
 public:
  RegisteredListener(std::unique_ptr<Listener> inner, Registrations& registrations)
      : inner_(std::move(inner)), registrations_(registrations) {}
  const transport::net::Handle& handle() const override { return inner_->handle(); }
  Result<std::unique_ptr<transport::net::RecvComm>> accept() override {
    auto comm = inner_->accept();
    if (!comm || *comm == nullptr) return comm;
    return std::unique_ptr<transport::net::RecvComm>(std::make_unique<RegisteredRecv>(std::move(*comm), registrations_));
  }

 private:
  std::unique_ptr<Listener> inner_;
  Registrations& registrations_;
};

class RegisteredConnecting final : public transport::net::Connecting {
 public:
  RegisteredConnecting(std::unique_ptr<Connecting> inner, Registrations& registrations)
      : inner_(std::move(inner)), registrations_(registrations) {}
  Result<std::unique_ptr<transport::net::SendComm>> poll() override {
    auto comm = inner_->poll();
    if (!comm || *comm == nullptr) return comm;
    return std::unique_ptr<transport::net::SendComm>(std::make_unique<RegisteredSend>(std::move(*comm), registrations_));
  }
  std::span<const int> descriptors() const override { return inner_->descriptors(); }

 private:
  std::unique_ptr<Connecting> inner_;
  Registrations& registrations_;
};

class RegisteredNetwork final : public transport::net::Network {
 public:
  explicit RegisteredNetwork(Registrations& registrations) : inner_(makeSocketNetwork()), registrations_(registrations) {}
  std::string_view name() const override { return "Registered"; }
  int32_t devices() const override { return inner_->devices(); }
  Result<transport::net::Properties> properties(int32_t device) const override { return inner_->properties(device); }
  Result<std::unique_ptr<transport::net::Listener>> listen(int32_t device) override {
    auto listener = inner_->listen(device);
    if (!listener) return listener;
    return std::unique_ptr<transport::net::Listener>(std::make_unique<RegisteredListener>(std::move(*listener), registrations_));
  }
  Result<std::unique_ptr<transport::net::Connecting>> connect(int32_t device, const transport::net::Handle& handle) override {
    auto connecting = inner_->connect(device, handle);
    if (!connecting) return connecting;
    return std::unique_ptr<transport::net::Connecting>(std::make_unique<RegisteredConnecting>(std::move(*connecting), registrations_));
  }
  std::span<const int> acceptDescriptors() const override { return inner_->acceptDescriptors(); }

 private:
  std::unique_ptr<Network> inner_;
  Registrations& registrations_;
};

/// Messages of every size, by the staging space and by reference, through pipes with slots of `slotBytes`.
void carry(uint64_t slotBytes, const std::vector<uint64_t>& sizes) {
  Registrations registrations;
  {
    Links links;
    const auto a = makeEngine(std::make_unique<RegisteredNetwork>(registrations));
    const auto b = makeEngine(std::make_unique<RegisteredNetwork>(registrations));
    JobGroup from(*a);
    JobGroup to(*b);
    Link* const link = links.make(from, to, 2, slotBytes);
    ASSERT_NE(link, nullptr);
    const std::vector<std::byte> data(1 << 20, std::byte{7});
    for (const uint64_t bytes : sizes) {
      if (bytes <= std::max<uint64_t>(slotBytes, transport::local::kShortBytes))
        link->push(data.data(), bytes, bytes);
      else
        link->pushReference(data.data(), bytes, bytes);
      const auto drive = [&] {
        (void)a->progress();
        (void)b->progress();
      };
      ASSERT_TRUE(driveUntil(drive, [&] { return link->recv.ready(); })) << bytes << ": " << from.status().text() << to.status().text();
      ASSERT_EQ(link->recv.head().bytes, bytes);
      if (link->recv.payload() != nullptr) {
        EXPECT_EQ(std::memcmp(link->recv.payload(), data.data(), bytes), 0) << bytes;
      }
      link->recv.release();
    }
  }
  EXPECT_GE(registrations.checked(), sizes.size());
  EXPECT_TRUE(registrations.isEmpty());
}

TEST(Registered, MessagesThroughSlots) { carry(4096, {0, 1, 100, 256, 257, 4096, 4097, 100000, 1 << 20, 8}); }

// A pipe whose values are all lent still has places for short messages.
TEST(Registered, MessagesThroughPipesWithoutSlots) { carry(0, {0, 1, 100, 200, 256, 300, 1 << 20, 8}); }

}  // namespace
}  // namespace tutti::progress::registered_test
