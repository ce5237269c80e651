#include "gpu/overlap.h"

#include <algorithm>
#include <cmath>

#include "bench/percentile.h"
#include "bench/units.h"
#include "gpu/compare.h"

namespace tutti::bench::gpu {
namespace {

constexpr double kCover = 2.5;   // products beside calls that are timed last so much longer, alone
constexpr double kPart = 0.5;    // calls beside products that are timed last such a part of their time, alone
constexpr int kCallsOfGraph = 10;
constexpr int kMostLaunches = 400;  // below the depth of a stream's queue

double medianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return percentile(values, 50);
}

class Overlap {
 public:
  Overlap(World& world, Device& device, const BenchOptions& options)
      : world_(world),
        device_(device),
        options_(options),
        libraries_(openBoth(options)),
        buffers_(device, options, libraries_[options.isMemoryOfA ? 0 : 1], world.rank(), world.ranks()),
        writer_(options, world.isLead()),
        product_(device.makeProduct(options.productSize, options.isProductOfZeros)) {
    writer_.header(device, {libraries_[0].version(), libraries_[1].version()}, {libraries_[0].path(), libraries_[1].path()});
    if (world.isLead())
      std::printf("beside %s\n%-14s %10s %-8s %12s %10s %12s %10s\n", product_->name().c_str(), "call", "size", "library", "product us",
                  "slower by", "call us", "slower by");
  }

  void run() {
    for (size_t i = 0; i < 2; ++i) {
      world_.step(format("connect {}", libraries_[i].name()));
      sides_[i].library = &libraries_[i];
      sides_[i].comm = libraries_[i].connect(world_, options_.ctas.front());
      enrol(sides_[i], options_, buffers_, i == 0);
    }
    for (const Operation* operation : options_.operations) {
      const std::optional<RedOp> redOp = operation->isReduction ? std::optional(options_.redOps.front()) : std::nullopt;
      for (const uint64_t count : countsOf(options_, operation, options_.types.front()))
        runKind({operation, options_.types.front(), redOp, options_.root, count, options_.isInPlace});
    }
    device_.wait();
    for (Side& side : sides_) withdraw(side);
  }

 private:
  struct Times {
    std::vector<double> productAlone, productBeside, callAlone, callBeside;
  };

  void launchCalls(Side& side, const CallKind& kind, int launches) {
    for (int i = 0; i < launches; ++i) {
      if (side.graph)
        side.graph->launch();
      else
        makeCalls(side, kind);
    }
  }
  void makeCalls(Side& side, const CallKind& kind) {
    const Place at = buffers_.place(kind, 0);
    for (int call = 0; call < kCallsOfGraph; ++call)
      side.library->call(kind, at.send, at.receive, world_.rank(), world_.ranks(), side.comm, device_.stream());
  }
  void launchProducts(int products) {
    for (int i = 0; i < products; ++i) product_->issue();
  }
  double timeProducts(int products) {
    return device_.timeUs(product_->stream(), [&] { launchProducts(products); }) / products;
  }
  double timeCalls(Side& side, const CallKind& kind, int launches) {
    return device_.timeUs(device_.stream(), [&] { launchCalls(side, kind, launches); }) / (launches * kCallsOfGraph);
  }
  void settle() {
    device_.wait();
    world_.barrier();
  }

  void runRound(Side& side, const CallKind& kind, int launches, int products, Times& times) {
    settle();
    times.productAlone.push_back(timeProducts(products));
    settle();
    times.callAlone.push_back(timeCalls(side, kind, launches));
    settle();
    launchCalls(side, kind, launches);
    times.productBeside.push_back(timeProducts(products));
    settle();
    launchProducts(std::clamp(static_cast<int>(std::ceil(kCover * kPart * products)), 1, kMostLaunches));
    times.callBeside.push_back(timeCalls(side, kind, launches));
  }

  void runKind(const CallKind& kind) {
    const std::string what = describe(kind, world_.ranks());
    double graphUs = 0;
    launchProducts(Product::kShapes);
    for (Side& side : sides_) {
      const Library::Environment own(*side.library);
      world_.step(format("{}: first calls of {} beside products", what, side.library->name()));
      makeCalls(side, kind);
      device_.wait();
      world_.step(format("{}: captured calls of {}", what, side.library->name()));
      side.graph = device_.capture([&] { makeCalls(side, kind); });
      launchCalls(side, kind, 1);
      settle();
      graphUs = std::max(graphUs, timeCalls(side, kind, 1) * kCallsOfGraph);
    }
    const double productUs = timeProducts(Product::kShapes);
    const std::vector<double> most = world_.largest({graphUs, productUs});
    const double lengthUs = std::max(options_.blockUs, most[0] / kPart);
    const int sets = std::clamp(static_cast<int>(std::ceil(lengthUs / (most[1] * Product::kShapes))), 1, kMostLaunches / Product::kShapes);
    const int products = sets * Product::kShapes;
    const int launches = std::clamp(static_cast<int>(kPart * products * most[1] / most[0]), 1, kMostLaunches);
    std::array<Times, 2> times;
    for (int round = 0; round < options_.rounds; ++round) {
      world_.step(format("{}: beside products, round {}", what, round));
      for (const int turn : {round % 2, 1 - round % 2}) runRound(sides_[turn], kind, launches, products, times[turn]);
    }
    device_.wait();
    for (size_t i = 0; i < 2; ++i) tell(kind, sides_[i], times[i], launches, products);
  }

  void tell(const CallKind& kind, Side& side, const Times& times, int launches, int products) {
    side.library->checkAsync(side.comm);
    side.graph.reset();
    const auto median = [&](const std::vector<double>& own) { return medianOf(world_.largest(own)); };
    const double productAlone = median(times.productAlone), productBeside = median(times.productBeside);
    const double callAlone = median(times.callAlone), callBeside = median(times.callBeside);
    writer_.object({{"overlap", std::string(kind.operation->name)}, {"library", side.library->name()}, {"product", product_->name()}},
                   {{"bytes", double(kind.bytes(world_.ranks()))}, {"ranks", world_.ranks()}, {"maxCtas", options_.ctas.front()},
                    {"launches", launches}, {"products", products}, {"productAloneUs", productAlone}, {"productBesideUs", productBeside},
                    {"callAloneUs", callAlone}, {"callBesideUs", callBeside}});
    if (!world_.isLead()) return;
    std::printf("%-14s %10s %-8s %12s %9.1f%% %12s %9.1f%%\n", std::string(kind.operation->name).c_str(),
                formatBytes(kind.bytes(world_.ranks())).c_str(), side.library->name().c_str(), formatNumber(productBeside).c_str(),
                100 * (productBeside / productAlone - 1), formatNumber(callBeside).c_str(), 100 * (callBeside / callAlone - 1));
    std::fflush(stdout);
  }

  World& world_;
  Device& device_;
  const BenchOptions& options_;
  std::array<Library, 2> libraries_;
  std::array<Side, 2> sides_;
  BlockBuffers buffers_;
  RowWriter writer_;
  std::unique_ptr<Product> product_;
};

}  // namespace

int runOverlap(World& world, const BenchOptions& options) {
  const std::unique_ptr<Device> device = options.isHost ? makeHostDevice() : makeCudaDevice(world.rank());
  Overlap(world, *device, options).run();
  return 0;
}

}  // namespace tutti::bench::gpu
