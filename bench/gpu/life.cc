#include "gpu/life.h"

#include <chrono>

#include "gpu/buffers.h"
#include "gpu/rows.h"

namespace tutti::bench::gpu {
namespace {

using Clock = std::chrono::steady_clock;

double msSince(Clock::time_point begin) { return std::chrono::duration<double, std::milli>(Clock::now() - begin).count(); }

CallKind kindOf(Op op, uint64_t bytes, int ranks) {
  for (const Operation& operation : operations()) {
    if (operation.op != op) continue;
    const std::optional<RedOp> redOp = operation.isReduction ? std::optional(RedOp::Sum) : std::nullopt;
    CallKind kind{&operation, DataType::F32, redOp, 0, 1, false};
    kind.count = std::max<uint64_t>(1, bytes / kind.bytes(ranks));
    return kind;
  }
  stop("no such operation");
}

class Life {
 public:
  Life(World& world, Device& device, const BenchOptions& options)
      : world_(world), device_(device), library_(options.a.name, options.a.path, options.a.variables),
        buffers_(device, options, library_, world.rank(), world.ranks()), free_(free()) {}

  const Library& library() const { return library_; }

  /// Bytes taken since the beginning.
  double taken() { return world_.largest(free_ - free()); }

  /// Milliseconds of the slowest rank; and until a first all-reduce of 8 bytes has ended.
  std::pair<double, double> connect(const char* which) {
    world_.step(format("connect the {}", which));
    world_.barrier();
    const Clock::time_point begin = Clock::now();
    comms_.push_back(library_.connect(world_, 0));
    const double connected = msSince(begin);
    call(Op::AllReduce, 8);
    return {world_.largest(connected), world_.largest(msSince(begin))};
  }

  void call(Op op, uint64_t bytes) {
    const Library::Environment own(library_);
    const CallKind kind = kindOf(op, bytes, world_.ranks());
    world_.step(describe(kind, world_.ranks()));
    library_.call(kind, buffers_.send(), buffers_.receive(), world_.rank(), world_.ranks(), comms_.back(), device_.stream());
    device_.wait();
  }

  /// The latest.
  double destroy() {
    world_.step("destroy");
    world_.barrier();
    const Clock::time_point begin = Clock::now();
    library_.destroy(comms_.back());
    comms_.pop_back();
    return world_.largest(msSince(begin));
  }

 private:
  double free() {
    device_.wait();
    world_.barrier();
    const auto bytes = static_cast<double>(device_.freeBytes());
    world_.barrier();
    return bytes;
  }

  World& world_;
  Device& device_;
  Library library_;
  BlockBuffers buffers_;
  double free_;
  std::vector<ncclComm_t> comms_;
};

}  // namespace

int runLife(World& world, const BenchOptions& options) {
  const std::unique_ptr<Device> device = options.isHost ? makeHostDevice() : makeCudaDevice(world.rank());
  RowWriter writer(options, world.isLead());
  Life life(world, *device, options);
  writer.header(*device, {life.library().version(), ""}, {options.a.path, ""});
  std::vector<std::pair<std::string, double>> figures;
  const auto [connected, ready] = life.connect("first communicator");
  figures.insert(figures.end(), {{"connectMs", connected}, {"readyMs", ready}, {"connectedBytes", life.taken()}});
  life.call(Op::AllReduce, options.maxBytes);
  figures.emplace_back("allReduceBytes", life.taken());
  life.call(Op::AllToAll, options.maxBytes);
  figures.emplace_back("allToAllBytes", life.taken());
  // What all communicators of a process share, as the code of kernels, is there already.
  const double before = life.taken();
  life.connect("communicator beside it");
  life.call(Op::AllReduce, options.maxBytes);
  life.call(Op::AllToAll, options.maxBytes);
  figures.emplace_back("besideBytes", life.taken() - before);
  life.destroy();
  figures.emplace_back("destroyMs", life.destroy());
  figures.emplace_back("leftBytes", life.taken());
  const auto [connectedAgain, readyAgain] = life.connect("second communicator");
  figures.insert(figures.end(), {{"connectAgainMs", connectedAgain}, {"readyAgainMs", readyAgain}});
  life.destroy();
  writer.object({{"life", options.a.name}}, figures);
  if (!world.isLead()) return 0;
  for (const auto& [key, value] : figures) std::printf("%-16s %14.3f\n", key.c_str(), value);
  return 0;
}

}  // namespace tutti::bench::gpu
