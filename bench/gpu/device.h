// What the measuring programs need of a device: memory, one stream, graphs, times, and the inputs and results of values.h. A GPU, or the
// host's own memory, so that everything else of them runs and is tested where there is no GPU.
//
// Owner: a rank's process, one thread. Whatever fails ends the process with a text (world.h: stop).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "gpu/values.h"
#include "nccl.h"

namespace tutti::bench::gpu {

/// What one call becomes, read from its capture.
struct Nodes {
  int kernels = 0;
  int copies = 0;         ///< nodes that copy or set memory: work of copy engines, or of kernels of the driver
  int others = 0;
  uint64_t ctas = 0;      ///< thread blocks that may run at once: of the largest kernel where all follow one another, else of all
  uint64_t threads = 0;   ///< of a block of the largest kernel
};

class Graph {
 public:
  virtual ~Graph() = default;
  virtual void launch() = 0;
  virtual Nodes nodes() = 0;
};

struct Difference {
  uint64_t wrong = 0;   ///< elements
  uint64_t first = 0;   ///< index of the first of them
};

/// A product of two matrices, made again and again on a stream of its own. What one shape loses to multiprocessors that are taken depends
/// on how full its last wave of blocks is, so shapes take turns.
class Product {
 public:
  static constexpr int kShapes = 8;
  virtual ~Product() = default;
  virtual std::string name() const = 0;
  /// Any kShapes that follow each other are all of them.
  virtual void issue() = 0;
  virtual cudaStream_t stream() const = 0;
};

using Work = std::function<void()>;

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;
  virtual int multiprocessors() const = 0;
  virtual bool hasGraphs() const = 0;
  /// Of the calls; no other work is on it.
  virtual cudaStream_t stream() const = 0;
  virtual cudaStream_t makeStream() = 0;
  virtual std::byte* allocate(uint64_t bytes) = 0;
  virtual void release(std::byte* memory) = 0;
  virtual uint64_t freeBytes() = 0;

  virtual void wait() = 0;
  /// What `issue` puts onto `stream`, from its begin to its end on the device, in microseconds; waits for it.
  virtual double timeUs(cudaStream_t stream, const Work& issue) = 0;
  /// What `issue` puts onto stream(); null where the device has no graphs.
  virtual std::unique_ptr<Graph> capture(const Work& issue) = 0;
  /// Keeps the stream busy for about so long.
  virtual void delay(cudaStream_t stream, double us) = 0;
  /// `size`: rows and most columns, a multiple of 16.
  virtual std::unique_ptr<Product> makeProduct(int size, bool isOfZeros) = 0;

  /// The three below use these tables, and wait for their end.
  virtual void setCodes(const Codes& codes) = 0;
  virtual void fill(std::byte* memory, uint64_t count, uint64_t seed, int rank) = 0;
  /// Bytes that no result holds by chance.
  virtual void spoil(std::byte* memory, uint64_t bytes) = 0;
  virtual Difference compare(const std::byte* memory, uint64_t count, uint64_t seed, const Expectation& expectation) = 0;
};

std::unique_ptr<Device> makeHostDevice();
/// GPU number `rank` modulo the number of GPUs.
std::unique_ptr<Device> makeCudaDevice(int rank);

}  // namespace tutti::bench::gpu
