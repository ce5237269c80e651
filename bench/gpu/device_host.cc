// Memory of the host as a Device: calls on the NULL stream are complete on return, so there is nothing to wait for and nothing to capture.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "gpu/device.h"
#include "gpu/world.h"

namespace tutti::bench::gpu {
namespace {

/// Small, and done when issue() returns.
class HostProduct final : public Product {
 public:
  std::string name() const override { return format("host, {} x {}", kSize, kSize); }
  cudaStream_t stream() const override { return nullptr; }
  void issue() override {
    for (size_t row = 0; row < kSize; ++row)
      for (size_t column = 0; column < kSize; ++column)
        for (size_t k = 0; k < kSize; ++k) c_[row * kSize + column] += a_[row * kSize + k] * b_[k * kSize + column];
  }

 private:
  static constexpr size_t kSize = 48;
  std::vector<float> a_ = std::vector<float>(kSize * kSize, 1.0f);
  std::vector<float> b_ = a_;
  std::vector<float> c_ = a_;
};

class HostDevice final : public Device {
 public:
  std::string name() const override { return "host"; }
  int multiprocessors() const override { return static_cast<int>(std::thread::hardware_concurrency()); }
  bool hasGraphs() const override { return false; }
  cudaStream_t stream() const override { return nullptr; }
  cudaStream_t makeStream() override { return nullptr; }
  std::byte* allocate(uint64_t bytes) override {
    constexpr uint64_t kPage = 4096;
    auto* memory = static_cast<std::byte*>(std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage));
    if (memory == nullptr) stop("no {} bytes of memory", bytes);
    return memory;
  }
  void release(std::byte* memory) override { std::free(memory); }
  uint64_t freeBytes() override { return 0; }

  void wait() override {}
  double timeUs(cudaStream_t, const Work& issue) override {
    const auto begin = std::chrono::steady_clock::now();
    issue();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  }
  std::unique_ptr<Graph> capture(const Work&) override { return nullptr; }
  void delay(cudaStream_t, double us) override { std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(us)); }
  std::unique_ptr<Product> makeProduct(int, bool) override { return std::make_unique<HostProduct>(); }

  void setCodes(const Codes& codes) override { codes_ = codes; }
  void fill(std::byte* memory, uint64_t count, uint64_t seed, int rank) override {
    const CodeView codes = view();
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t code = inputCode(codes, seed, rank, i);
      std::memcpy(memory + i * codes.elementBytes, &code, codes.elementBytes);  // little-endian machines only, like the library
    }
  }
  void spoil(std::byte* memory, uint64_t bytes) override { std::memset(memory, kSpoiled, bytes); }
  Difference compare(const std::byte* memory, uint64_t count, uint64_t seed, const Expectation& expectation) override {
    const CodeView codes = view();
    Difference difference;
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t code = expectedCode(codes, seed, expectation, i);
      if (std::memcmp(memory + i * codes.elementBytes, &code, codes.elementBytes) == 0) continue;
      if (difference.wrong++ == 0) difference.first = i;
    }
    return difference;
  }

 private:
  static constexpr int kSpoiled = 0xa7;

  CodeView view() const {
    return {codes_.inputs.data(), codes_.results.data(), static_cast<uint32_t>(codes_.inputs.size()), sizeOf(codes_.type), codes_.ranks,
            codes_.combine};
  }

  Codes codes_;
};

}  // namespace

std::unique_ptr<Device> makeHostDevice() { return std::make_unique<HostDevice>(); }

#ifndef TUTTI_BENCH_CUDA
std::unique_ptr<Device> makeCudaDevice(int) { stop("built without CUDA: --host is all there is"); }
#endif

}  // namespace tutti::bench::gpu
