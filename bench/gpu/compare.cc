#include "gpu/compare.h"

#include <algorithm>

#include "bench/percentile.h"
#include "bench/units.h"

namespace tutti::bench::gpu {
namespace {

constexpr int kLeastCalls = 2;
constexpr int kMostCalls = 50;
constexpr int kTrialCalls = 4;
constexpr uint64_t kSeedStep = 0x1000;  // more than slots

}  // namespace

std::array<Library, 2> openBoth(const BenchOptions& options) {
  std::array<Library, 2> both = {Library(options.a.name, options.a.path, options.a.variables),
                                 Library(options.b.name, options.b.path, options.b.variables)};
  if (both[0].isSameAs(both[1])) stop("{} and {} are one library to the loader: compare it with a copy", both[0].path(), both[1].path());
  return both;
}

std::vector<uint64_t> countsOf(const BenchOptions& options, const Operation* operation, DataType type) {
  Options sizes;
  sizes.operation = operation;
  sizes.ranks = options.ranks;
  sizes.minBytes = options.minBytes;
  sizes.maxBytes = options.maxBytes;
  sizes.stepFactor = options.stepFactor;
  return tutti::bench::countsOf(sizes, type);
}

void enrol(Side& side, const BenchOptions& options, const BlockBuffers& buffers, bool isA) {
  for (std::byte* const memory : {buffers.send(), buffers.receive()}) {
    if (options.buffers == Buffers::Registered) side.handles.push_back(side.library->enrol(side.comm, memory, buffers.capacity()));
    if (options.buffers == Buffers::Windows || (options.buffers == Buffers::WindowsOfA && isA))
      side.windows.push_back(side.library->openWindow(side.comm, memory, buffers.capacity()));
  }
}
void withdraw(Side& side) {
  for (void* const handle : side.handles) side.library->withdraw(side.comm, handle);
  for (const ncclWindow_t window : side.windows) side.library->closeWindow(side.comm, window);
  side.handles.clear();
  side.windows.clear();
}

Comparison::Comparison(World& world, Device& device, const BenchOptions& options)
    : world_(world), device_(device), options_(options), libraries_(openBoth(options)),
      buffers_(device, options, libraries_[options.isMemoryOfA ? 0 : 1], world.rank(), world.ranks()), writer_(options, world.isLead()) {
  for (size_t i = 0; i < 2; ++i) sides_[i].library = &libraries_[i];
  writer_.header(device, {libraries_[0].version(), libraries_[1].version()}, {libraries_[0].path(), libraries_[1].path()});
}

bool Comparison::isTimeUp() {
  double isUp = std::chrono::duration<double>(Clock::now() - begin_).count() > options_.seconds;
  world_.share(&isUp, sizeof(isUp));  // the same for all
  return isUp != 0;
}

void Comparison::connect(int ctas) {
  std::array<Taken, 2> taken;
  for (size_t i = 0; i < 2; ++i) taken[i] = warmUp(sides_[i], ctas);
  writer_.memory(ctas, taken);
}

Taken Comparison::warmUp(Side& side, int ctas) {
  world_.step(format("connect {}", side.library->name()));
  device_.wait();
  world_.barrier();
  const auto before = static_cast<double>(device_.freeBytes());
  side.comm = side.library->connect(world_, ctas);
  const Library::Environment own(*side.library);
  enrol(side, options_, buffers_, &side == &sides_[0]);
  device_.wait();
  world_.barrier();
  Taken taken{world_.largest(before - static_cast<double>(device_.freeBytes())), 0};
  for (const Operation* operation : options_.operations) {
    const DataType type = options_.types.front();
    const std::vector<uint64_t> counts = countsOf(options_, operation, type);
    for (const uint64_t count : {counts.front(), counts.back()}) {
      CallKind kind{operation,     type,  operation->isReduction ? std::optional(options_.redOps.front()) : std::nullopt,
                    options_.root, count, false};
      world_.step(format("{}: first {}", side.library->name(), describe(kind, world_.ranks())));
      makeCalls(side, kind, 1);
      device_.wait();
    }
  }
  world_.barrier();
  taken.warm = world_.largest(before - static_cast<double>(device_.freeBytes()));
  return taken;
}

void Comparison::disconnect() {
  device_.wait();
  for (Side& side : sides_) {
    world_.step(format("disconnect {}", side.library->name()));
    withdraw(side);
    world_.barrier();
    side.library->destroy(side.comm);
  }
}

void Comparison::makeCalls(Side& side, const CallKind& kind, int calls) {
  const int slots = buffers_.slots(kind, calls);
  for (int call = 0; call < calls; ++call) {
    const Place at = buffers_.place(kind, call % slots);
    side.library->call(kind, at.send, at.receive, world_.rank(), world_.ranks(), side.comm, device_.stream());
  }
}

void Comparison::runBlock(Side& side, const CallKind& kind, Mode mode, int calls) {
  if (mode == Mode::Graph) return side.graph->launch();
  const Clock::time_point begin = Clock::now();
  makeCalls(side, kind, calls);
  side.cpuUs.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / calls);
}

int Comparison::countCalls(const CallKind& kind) {
  double slowestUs = 0;
  for (Side& side : sides_) {
    const Library::Environment own(*side.library);
    makeCalls(side, kind, options_.warmups);
    device_.wait();
    world_.barrier();
    const int calls = buffers_.slots(kind, kTrialCalls);
    const double us = device_.timeUs(device_.stream(), [&] { makeCalls(side, kind, calls); }) / calls;
    slowestUs = std::max(slowestUs, world_.largest(us));
  }
  const int calls = std::clamp(static_cast<int>(options_.blockUs / slowestUs), kLeastCalls, kMostCalls);
  return kind.isInPlace ? buffers_.slots(kind, calls) : calls;
}

void Comparison::checkOnce(Side& side, const CallKind& kind, Mode mode, int calls) {
  const int slots = buffers_.slots(kind, calls);
  seed_ += kSeedStep;
  buffers_.write(kind, slots, seed_);
  world_.barrier();
  runBlock(side, kind, mode, calls);
  device_.wait();
  side.library->checkAsync(side.comm);
  const uint64_t wrong = buffers_.countWrong(kind, slots, seed_, side.library->name());
  side.figures.wrong += world_.sum(static_cast<double>(wrong));
}

void Comparison::finishFigures(Side& side) {
  std::vector<double> blocks = world_.largest(side.blocksUs);
  std::sort(blocks.begin(), blocks.end());
  side.figures.medianUs = percentile(blocks, 50);
  side.figures.p99Us = percentile(blocks, 99);
  side.figures.firstQuarterUs = percentile(blocks, 25);
  side.figures.thirdQuarterUs = percentile(blocks, 75);
  std::vector<double> cpu = side.cpuUs;
  std::sort(cpu.begin(), cpu.end());
  if (!cpu.empty()) side.figures.cpuUs = world_.largest(percentile(cpu, 50));
}

void Comparison::runCell(const CallKind& kind, Mode mode, int ctas) {
  const std::string what = format("{}, {}", describe(kind, world_.ranks()), name(mode));
  world_.step(what + ": first calls");
  device_.setCodes(makeCodes(kind.type, kind.redOp, world_.ranks()));
  const int calls = countCalls(kind);
  for (Side& side : sides_) {
    side.figures = {};
    side.blocksUs.clear();
    const Library::Environment own(*side.library);
    if (device_.hasGraphs()) {
      const std::unique_ptr<Graph> one = device_.capture([&] { makeCalls(side, kind, 1); });
      const Nodes nodes = one->nodes();
      const std::vector<double> most =
          world_.largest({double(nodes.kernels), double(nodes.copies), double(nodes.others), double(nodes.ctas), double(nodes.threads)});
      side.figures.nodes = {int(most[0]), int(most[1]), int(most[2]), uint64_t(most[3]), uint64_t(most[4])};
    }
    if (mode == Mode::Graph) side.graph = device_.capture([&] { makeCalls(side, kind, calls); });
    world_.step(format("{}: check {}", what, side.library->name()));
    checkOnce(side, kind, mode, calls);
    side.cpuUs.clear();
  }
  world_.step(what + ": rounds");
  for (int round = 0; round < options_.rounds; ++round) {
    for (const int turn : {round % 2, 1 - round % 2}) {
      Side& side = sides_[static_cast<size_t>(turn)];
      world_.barrier();
      side.blocksUs.push_back(device_.timeUs(device_.stream(), [&] { runBlock(side, kind, mode, calls); }) / calls);
    }
  }
  CompareRow row{kind, mode, ctas, options_.rounds, calls, buffers_.slots(kind, calls), {}};
  for (size_t i = 0; i < 2; ++i) {
    finishFigures(sides_[i]);
    world_.step(format("{}: check {} again", what, libraries_[i].name()));
    checkOnce(sides_[i], kind, mode, calls);
    sides_[i].graph.reset();
    row.figures[i] = sides_[i].figures;
    wrong_ += row.figures[i].wrong;
  }
  writer_.row(row, device_.multiprocessors());
  if (world_.isLead()) show(row);
}

void Comparison::show(const CompareRow& row) const {
  const Figures& a = row.figures[0];
  const Figures& b = row.figures[1];
  std::printf("%-14s %10s %-5s %10s %10s %7.2f %6llu %6llu %s\n", std::string(row.kind.operation->name).c_str(),
              formatBytes(row.kind.bytes(world_.ranks())).c_str(), std::string(name(row.mode)).c_str(), formatNumber(a.medianUs).c_str(),
              formatNumber(b.medianUs).c_str(), b.medianUs / a.medianUs, static_cast<unsigned long long>(a.nodes.ctas),
              static_cast<unsigned long long>(b.nodes.ctas), a.wrong + b.wrong == 0 ? "" : "WRONG");
  std::fflush(stdout);
}

void Comparison::runKinds(int ctas, const Operation* operation) {
  std::vector<std::optional<RedOp>> redOps = {std::nullopt};
  if (operation->isReduction) redOps.assign(options_.redOps.begin(), options_.redOps.end());
  for (const DataType type : options_.types) {
    for (const std::optional<RedOp>& redOp : redOps) {
      for (const uint64_t count : countsOf(options_, operation, type)) {
        for (const Mode mode : options_.modes) {
          if (mode == Mode::Graph && !device_.hasGraphs()) continue;
          if (isTimeUp()) {
            wasCut_ = true;
            return;
          }
          runCell({operation, type, redOp, options_.root, count, options_.isInPlace && operation->hasInPlace}, mode, ctas);
        }
      }
    }
  }
}

int Comparison::run() {
  if (world_.isLead())
    std::printf("%-14s %10s %-5s %10s %10s %7s %6s %6s\n", "call", "size", "mode", (options_.a.name + " us").c_str(),
                (options_.b.name + " us").c_str(), "faster", "CTAs", "CTAs");
  for (const int ctas : options_.ctas) {
    wasCut_ = wasCut_ || isTimeUp();
    if (wasCut_) break;
    connect(ctas);
    for (const Operation* operation : options_.operations) runKinds(ctas, operation);
    disconnect();
  }
  writer_.object({}, {{"complete", wasCut_ ? 0 : 1}});
  if (wasCut_ && world_.isLead()) std::printf("the time was up: not all rows were measured\n");
  return wrong_ == 0 ? 0 : kExitWrong;
}

int runCompare(World& world, const BenchOptions& options) {
  const std::unique_ptr<Device> device = options.isHost ? makeHostDevice() : makeCudaDevice(world.rank());
  return Comparison(world, *device, options).run();
}

}  // namespace tutti::bench::gpu
