#include "transport/plugin/comms.h"

#include <utility>

namespace tutti::transport::plugin {
namespace {

Result<net::MemoryKey> registerWith(const PluginNetwork::Session& session, void* comm, void* data, uint64_t bytes, net::MemoryKind kind) {
  net::MemoryKey key;
  const int code = session.version().regMr(session.raw(), comm, data, bytes, static_cast<int>(kind), &key.token);
  if (Status status = session.statusOf(code, "regMr"); !status.ok()) return tl::unexpected(std::move(status));
  return key;
}

/// A code and the request that came with it.
Poll take(Status* status, Status outcome, net::Request request) {
  if (!outcome.ok()) {
    if (status->ok()) *status = std::move(outcome);
    return Poll::Failed;
  }
  return request ? Poll::Ready : Poll::Pending;
}

net::Tested testWith(const PluginNetwork::Session& session, net::Request request, uint64_t* bytes, Status* status) {
  int done = 0;
  int size = 0;
  Status outcome = session.statusOf(session.version().test(session.raw(), request.token, &done, &size), "test");
  if (!outcome.ok()) {
    if (status->ok()) *status = std::move(outcome);
    return {Poll::Failed, false};
  }
  if (done == 0) return {Poll::Pending, false};
  // Sizes come back as an int in all versions: what is told of a longer message is cut, and the caller knows how much it asked for.
  if (bytes != nullptr) *bytes = static_cast<uint32_t>(size);
  return {Poll::Ready, true};
}

}  // namespace

PluginSendComm::~PluginSendComm() { (void)session_->version().closeSend(session_->raw(), comm_); }

Result<net::MemoryKey> PluginSendComm::registerMemory(void* data, uint64_t bytes, net::MemoryKind kind) {
  return registerWith(*session_, comm_, data, bytes, kind);
}

void PluginSendComm::deregisterMemory(net::MemoryKey key) { (void)session_->version().deregMr(session_->raw(), comm_, key.token); }

Poll PluginSendComm::isend(std::span<const net::OutMessage> messages, net::Request* request) {
  *request = net::Request();
  if (messages.size() != 1 || !status_.ok()) return Poll::Failed;
  const net::OutMessage& m = messages[0];
  const int code =
      session_->version().isend(session_->raw(), comm_, const_cast<std::byte*>(m.data), m.bytes, m.tag, m.key.token, &request->token);
  return take(&status_, session_->statusOf(code, "isend"), *request);
}

net::Tested PluginSendComm::test(net::Request request, uint64_t* bytes) { return testWith(*session_, request, bytes, &status_); }

PluginRecvComm::~PluginRecvComm() { (void)session_->version().closeRecv(session_->raw(), comm_); }

Result<net::MemoryKey> PluginRecvComm::registerMemory(void* data, uint64_t bytes, net::MemoryKind kind) {
  return registerWith(*session_, comm_, data, bytes, kind);
}

void PluginRecvComm::deregisterMemory(net::MemoryKey key) { (void)session_->version().deregMr(session_->raw(), comm_, key.token); }

Poll PluginRecvComm::irecv(const net::InMessage& m, net::Request* request) {
  *request = net::Request();
  if (!status_.ok()) return Poll::Failed;
  const int code = session_->version().irecv(session_->raw(), comm_, m.data, m.capacity, m.tag, m.key.token, &request->token);
  return take(&status_, session_->statusOf(code, "irecv"), *request);
}

Poll PluginRecvComm::iflush(const net::InMessage& m, net::Request* request) {
  *request = net::Request();
  if (!status_.ok()) return Poll::Failed;
  const int code = session_->version().iflush(session_->raw(), comm_, m.data, static_cast<int>(m.capacity), m.key.token, &request->token);
  const Poll poll = take(&status_, session_->statusOf(code, "iflush"), *request);
  return poll == Poll::Failed ? poll : Poll::Ready;
}

net::Tested PluginRecvComm::test(net::Request request, uint64_t* bytes) { return testWith(*session_, request, bytes, &status_); }

Result<std::unique_ptr<net::Listener>> PluginListener::create(SharedSession session, int32_t device) {
  std::unique_ptr<PluginListener> listener(new PluginListener(std::move(session)));
  const PluginNetwork::Session& own = *listener->session_;
  const int code = own.version().listen(own.raw(), own.context(), device, listener->handle_.bytes.data(), &listener->comm_);
  if (Status status = own.statusOf(code, "listen"); !status.ok()) return tl::unexpected(std::move(status));
  if (listener->comm_ == nullptr) return fail(Code::InternalError, "network {}: listen returned nothing", own.library().networkName());
  return std::unique_ptr<net::Listener>(std::move(listener));
}

PluginListener::~PluginListener() {
  if (comm_ != nullptr) (void)session_->version().closeListen(session_->raw(), comm_);
}

Result<std::unique_ptr<net::RecvComm>> PluginListener::accept() {
  void* comm = nullptr;
  if (Status status = session_->statusOf(session_->version().accept(session_->raw(), comm_, &comm), "accept"); !status.ok()) {
    return tl::unexpected(std::move(status));
  }
  if (comm == nullptr) return std::unique_ptr<net::RecvComm>();
  return std::unique_ptr<net::RecvComm>(std::make_unique<PluginRecvComm>(session_, comm));
}

Result<std::unique_ptr<net::SendComm>> PluginConnecting::poll() {
  void* comm = nullptr;
  const int code = session_->version().connect(session_->raw(), session_->context(), device_, session_->use().trafficClass,
                                                    handle_.bytes.data(), &comm);
  if (Status status = session_->statusOf(code, "connect"); !status.ok()) return tl::unexpected(std::move(status));
  if (comm == nullptr) return std::unique_ptr<net::SendComm>();
  return std::unique_ptr<net::SendComm>(std::make_unique<PluginSendComm>(session_, comm));
}

}  // namespace tutti::transport::plugin
