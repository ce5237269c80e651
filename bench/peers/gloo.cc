// Gloo in its default mode: sockets over TCP, the algorithms that it chooses itself, one context.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "peers/tutti.h"

namespace tutti::bench {
namespace {

/// Gloo's buffers are not const, also where it only reads them.
float* writable(const float* data) { return const_cast<float*>(data); }

class Gloo final : public Library {
 public:
  explicit Gloo(std::shared_ptr<gloo::Context> context) : context_(std::move(context)) {}

  std::string name() const override { return "Gloo"; }
  /// Its reduce-scatter is of another kind: in place, and its result overlaid with partial sums.
  bool offers(Op op) const override { return op != Op::ReduceScatter && op != Op::SendRecv; }

  void barrier() override {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  }
  void allReduce(const float* in, float* out, size_t count) override {
    gloo::AllreduceOptions options(context_);
    options.setInput(writable(in), count);
    options.setOutput(out, count);
    options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
    gloo::allreduce(options);
  }
  void allGather(const float* in, float* out, size_t part) override {
    gloo::AllgatherOptions options(context_);
    options.setInput(writable(in), part);
    options.setOutput(out, part * static_cast<size_t>(context_->size));
    gloo::allgather(options);
  }
  void reduceScatter(const float*, float*, size_t) override { stop("Gloo has no such reduce-scatter"); }
  /// Its messages go out of buffers that are registered first.
  void sendReceive(const float*, int, float*, int, size_t) override { stop("Gloo has no such messages"); }
  void allToAll(const float* in, float* out, size_t part) override {
    gloo::AlltoallOptions options(context_);
    options.setInput(writable(in), part * static_cast<size_t>(context_->size));
    options.setOutput(out, part * static_cast<size_t>(context_->size));
    gloo::alltoall(options);
  }
  void broadcast(float* data, size_t count, int root) override {
    gloo::BroadcastOptions options(context_);
    options.setOutput(data, count);
    options.setRoot(root);
    gloo::broadcast(options);
  }

 private:
  std::shared_ptr<gloo::Context> context_;
};

/// A folder where the ranks find each other, the same for all; rank 0 makes it.
std::string shareFolder(Tutti& tutti) {
  std::array<float, 256> words{};
  if (tutti.rank() == 0) {
    const std::string pattern = "bench_gloo." + std::string(6, 'X');  // what mkdtemp replaces
    std::string path = (std::filesystem::temp_directory_path() / pattern).string();
    if (path.size() >= sizeof words || mkdtemp(path.data()) == nullptr) stop("cannot make a temporary folder");
    std::memcpy(words.data(), path.data(), path.size());
  }
  tutti.broadcast(words.data(), words.size(), 0);
  return reinterpret_cast<const char*>(words.data());
}

}  // namespace

std::unique_ptr<Library> connectPeer(Tutti& tutti) {
  const std::string folder = shareFolder(tutti);
  auto device = gloo::transport::tcp::CreateDevice("localhost");  // the interface; all ranks are on this host
  auto context = std::make_shared<gloo::rendezvous::Context>(tutti.rank(), tutti.ranks());
  context->connectFullMesh(std::make_shared<gloo::rendezvous::FileStore>(folder), device);
  tutti.barrier();
  if (tutti.rank() == 0) std::filesystem::remove_all(folder);
  return std::make_unique<Gloo>(std::move(context));
}

}  // namespace tutti::bench
