// A GPU as a Device.
#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <vector>

#include "gpu/device.h"
#include "gpu/kernels.h"
#include "gpu/world.h"

namespace tutti::bench::gpu {
namespace {

constexpr int kSpoiled = 0xa7;
constexpr size_t kMostCodes = 4096;

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) stop("{}: {}", what, cudaGetErrorString(error));
}
#define BENCH_CUDA(call) check((call), #call)

/// The driver's own functions: kernels of other libraries are unknown to this program's copy of the runtime.
template <class Function>
Function driverFunction(const char* name, unsigned version) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  BENCH_CUDA(cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &found));
  if (function == nullptr) stop("the driver has no {}", name);
  return reinterpret_cast<Function>(function);
}

class CudaGraph final : public Graph {
 public:
  CudaGraph(cudaGraph_t graph, cudaStream_t stream) : graph_(graph), stream_(stream) {
    BENCH_CUDA(cudaGraphInstantiate(&executable_, graph_, 0));
  }
  ~CudaGraph() override {
    cudaGraphExecDestroy(executable_);
    cudaGraphDestroy(graph_);
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  void launch() override { BENCH_CUDA(cudaGraphLaunch(executable_, stream_)); }
  Nodes nodes() override {
    Nodes all;
    count(graph_, all);
    return all;
  }

 private:
  static void count(cudaGraph_t graph, Nodes& all) {
    static const auto read = driverFunction<CUresult (*)(CUgraphNode, CUDA_KERNEL_NODE_PARAMS*)>("cuGraphKernelNodeGetParams", 12000);
    size_t number = 0;
    BENCH_CUDA(cudaGraphGetNodes(graph, nullptr, &number));
    std::vector<cudaGraphNode_t> nodes(number);
    if (number != 0) BENCH_CUDA(cudaGraphGetNodes(graph, nodes.data(), &number));
    std::vector<cudaGraphNode_t> kernels;
    uint64_t sum = 0;
    uint64_t largest = 0;
    for (const cudaGraphNode_t node : nodes) {
      cudaGraphNodeType type{};
      const cudaError_t code = cudaGraphNodeGetType(node, &type);
      if (code == cudaErrorUnknown) {  // memory operations of a stream, which the runtime has no name for
        (void)cudaGetLastError();
        type = cudaGraphNodeTypeEmpty;
      } else {
        BENCH_CUDA(code);
      }
      if (type == cudaGraphNodeTypeGraph) {
        cudaGraph_t child = nullptr;
        BENCH_CUDA(cudaGraphChildGraphNodeGetGraph(node, &child));
        count(child, all);
      } else if (type == cudaGraphNodeTypeKernel) {
        CUDA_KERNEL_NODE_PARAMS kernel{};
        if (const CUresult answer = read(node, &kernel); answer != CUDA_SUCCESS)
          stop("cuGraphKernelNodeGetParams returned {}", static_cast<int>(answer));
        ++all.kernels;
        const uint64_t blocks = uint64_t{kernel.gridDimX} * kernel.gridDimY * kernel.gridDimZ;
        kernels.push_back(node);
        sum += blocks;
        largest = std::max(largest, blocks);
        all.threads = std::max(all.threads, uint64_t{kernel.blockDimX} * kernel.blockDimY * kernel.blockDimZ);
      } else if (type == cudaGraphNodeTypeMemcpy || type == cudaGraphNodeTypeMemset) {
        ++all.copies;
      } else {
        ++all.others;
      }
    }
    all.ctas += areOrdered(graph, kernels) ? largest : sum;
  }
  /// Whether of any two of these nodes one follows the other.
  static bool areOrdered(cudaGraph_t graph, const std::vector<cudaGraphNode_t>& nodes) {
    if (nodes.size() < 2) return true;
    size_t number = 0;
    BENCH_CUDA(edgesOf(graph, nullptr, nullptr, nullptr, &number));
    std::vector<cudaGraphNode_t> from(number);
    std::vector<cudaGraphNode_t> to(number);
    std::vector<cudaGraphEdgeData> data(number);  // asked for, as edges that have some are not told of otherwise
    BENCH_CUDA(edgesOf(graph, from.data(), to.data(), data.data(), &number));
    const auto follows = [&](cudaGraphNode_t later, cudaGraphNode_t first) {
      std::vector<cudaGraphNode_t> reached{first};
      for (size_t at = 0; at < reached.size(); ++at)
        for (size_t e = 0; e < number; ++e)
          if (from[e] == reached[at] && std::find(reached.begin(), reached.end(), to[e]) == reached.end()) reached.push_back(to[e]);
      return std::find(reached.begin(), reached.end(), later) != reached.end();
    };
    for (size_t a = 0; a < nodes.size(); ++a)
      for (size_t b = 0; b < a; ++b)
        if (!follows(nodes[a], nodes[b]) && !follows(nodes[b], nodes[a])) return false;
    return true;
  }
  static cudaError_t edgesOf(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to, cudaGraphEdgeData* data, size_t* number) {
#if CUDART_VERSION >= 13000
    return cudaGraphGetEdges(graph, from, to, data, number);
#else
    return cudaGraphGetEdges_v2(graph, from, to, data, number);
#endif
  }

  cudaGraph_t graph_;
  cudaStream_t stream_;
  cudaGraphExec_t executable_ = nullptr;
};

/// cuBLAS, opened at run time, where it is; otherwise productKernel.
class CudaProduct final : public Product {
 public:
  CudaProduct(Device& device, int size, bool isOfZeros) : size_(size), stream_(device.makeStream()) {
    const uint64_t elements = static_cast<uint64_t>(size) * static_cast<uint64_t>(size);
    device.setCodes(makeCodes(DataType::BF16, std::nullopt, 1));
    for (std::byte*& matrix : matrices_) {
      matrix = device.allocate(2 * elements);
      if (isOfZeros) {
        BENCH_CUDA(cudaMemset(matrix, 0, 2 * elements));
      } else {
        device.fill(matrix, elements, static_cast<uint64_t>(&matrix - matrices_), 0);
      }
    }
    for (const char* file : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"}) {
      if (library_ == nullptr) library_ = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    }
    if (library_ == nullptr) return;
    const auto create = reinterpret_cast<int (*)(void**)>(dlsym(library_, "cublasCreate_v2"));
    const auto setStream = reinterpret_cast<int (*)(void*, cudaStream_t)>(dlsym(library_, "cublasSetStream_v2"));
    multiply_ = reinterpret_cast<Multiply>(dlsym(library_, "cublasGemmEx"));
    if (create == nullptr || setStream == nullptr || multiply_ == nullptr || create(&handle_) != 0 || setStream(handle_, stream_) != 0)
      stop("cuBLAS could not be used, though it was found");
  }

  std::string name() const override {
    if (library_ == nullptr) return format("own kernel, bfloat16, {} x {}", size_, size_);
    return format("cuBLAS, bfloat16, {} x {} to {}", size_, size_ - step() * (kShapes - 1), size_);
  }
  cudaStream_t stream() const override { return stream_; }
  void issue() override {
    if (library_ == nullptr) {
      launchProduct(matrices_[0], matrices_[1], matrices_[2], size_, stream_);
      return BENCH_CUDA(cudaGetLastError());
    }
    constexpr int kNoTranspose = 0, kDefaultAlgorithm = -1, kCompute32F = 68;
    const float one = 1, zero = 0;
    const int columns = size_ - step() * (turn_++ % kShapes);
    const int code = multiply_(handle_, kNoTranspose, kNoTranspose, size_, columns, size_, &one, matrices_[0], CUDA_R_16BF, size_,
                               matrices_[1], CUDA_R_16BF, size_, &zero, matrices_[2], CUDA_R_16BF, size_, kCompute32F, kDefaultAlgorithm);
    if (code != 0) stop("cublasGemmEx returned {}", code);
  }

 private:
  using Multiply = int (*)(void*, int, int, int, int, int, const void*, const void*, cudaDataType_t, int, const void*, cudaDataType_t, int,
                           const void*, void*, cudaDataType_t, int, int, int);
  /// A row of tiles less, where that is a small part of it all.
  int step() const { return size_ / 64 / 16 * 16; }

  int size_;
  int turn_ = 0;
  cudaStream_t stream_;
  std::byte* matrices_[3] = {};
  void* library_ = nullptr;
  void* handle_ = nullptr;
  Multiply multiply_ = nullptr;
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int rank) {
    int devices = 0;
    BENCH_CUDA(cudaGetDeviceCount(&devices));
    if (devices == 0) stop("no GPU was found");
    BENCH_CUDA(cudaSetDevice(rank % devices));
    BENCH_CUDA(cudaGetDeviceProperties(&properties_, rank % devices));
    stream_ = makeStream();
    BENCH_CUDA(cudaEventCreate(&begin_));
    BENCH_CUDA(cudaEventCreate(&end_));
    BENCH_CUDA(cudaMalloc(&found_, 2 * sizeof(unsigned long long)));
    BENCH_CUDA(cudaMalloc(&codes_, kMostCodes * sizeof(uint64_t)));
  }

  std::string name() const override { return properties_.name; }
  int multiprocessors() const override { return properties_.multiProcessorCount; }
  bool hasGraphs() const override { return true; }
  cudaStream_t stream() const override { return stream_; }
  cudaStream_t makeStream() override {
    cudaStream_t stream = nullptr;
    BENCH_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
  }
  std::byte* allocate(uint64_t bytes) override {
    void* memory = nullptr;
    BENCH_CUDA(cudaMalloc(&memory, bytes));
    return static_cast<std::byte*>(memory);
  }
  void release(std::byte* memory) override { BENCH_CUDA(cudaFree(memory)); }
  uint64_t freeBytes() override {
    size_t free = 0, total = 0;
    BENCH_CUDA(cudaMemGetInfo(&free, &total));
    return free;
  }

  void wait() override { BENCH_CUDA(cudaDeviceSynchronize()); }
  double timeUs(cudaStream_t stream, const Work& issue) override {
    BENCH_CUDA(cudaEventRecord(begin_, stream));
    issue();
    BENCH_CUDA(cudaEventRecord(end_, stream));
    BENCH_CUDA(cudaEventSynchronize(end_));
    float ms = 0;
    BENCH_CUDA(cudaEventElapsedTime(&ms, begin_, end_));
    return ms * 1000.0;
  }
  std::unique_ptr<Graph> capture(const Work& issue) override {
    cudaGraph_t graph = nullptr;
    BENCH_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    issue();
    BENCH_CUDA(cudaStreamEndCapture(stream_, &graph));
    return std::make_unique<CudaGraph>(graph, stream_);
  }
  void delay(cudaStream_t stream, double us) override {
    launchDelay(static_cast<uint64_t>(us * 1000), stream);
    BENCH_CUDA(cudaGetLastError());
  }
  std::unique_ptr<Product> makeProduct(int size, bool isOfZeros) override {
    return std::make_unique<CudaProduct>(*this, size, isOfZeros);
  }

  void setCodes(const Codes& codes) override {
    std::vector<uint64_t> table = codes.inputs;
    table.insert(table.end(), codes.results.begin(), codes.results.end());
    if (table.size() > kMostCodes) stop("a table of {} codes; {} are the most", table.size(), kMostCodes);
    // On the stream of those that read them, which does not wait for plain copies; a plain one may return before its end.
    BENCH_CUDA(cudaMemcpyAsync(codes_, table.data(), table.size() * sizeof(uint64_t), cudaMemcpyHostToDevice, stream_));
    BENCH_CUDA(cudaStreamSynchronize(stream_));
    view_ = {codes_,       codes_ + codes.inputs.size(), static_cast<uint32_t>(codes.inputs.size()), sizeOf(codes.type), codes.ranks,
             codes.combine};
  }
  void fill(std::byte* memory, uint64_t count, uint64_t seed, int rank) override {
    launchFill(memory, count, view_, seed, rank, stream_);
    BENCH_CUDA(cudaGetLastError());
    BENCH_CUDA(cudaStreamSynchronize(stream_));
  }
  void spoil(std::byte* memory, uint64_t bytes) override {
    BENCH_CUDA(cudaMemsetAsync(memory, kSpoiled, bytes, stream_));
    BENCH_CUDA(cudaStreamSynchronize(stream_));
  }
  Difference compare(const std::byte* memory, uint64_t count, uint64_t seed, const Expectation& expectation) override {
    unsigned long long found[2] = {0, ~0ull};
    BENCH_CUDA(cudaMemcpyAsync(found_, found, sizeof(found), cudaMemcpyHostToDevice, stream_));
    launchCompare(memory, count, view_, seed, expectation, found_, stream_);
    BENCH_CUDA(cudaGetLastError());
    BENCH_CUDA(cudaMemcpyAsync(found, found_, sizeof(found), cudaMemcpyDeviceToHost, stream_));
    BENCH_CUDA(cudaStreamSynchronize(stream_));
    return {found[0], found[0] == 0 ? 0 : found[1]};
  }

 private:
  cudaDeviceProp properties_{};
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
  unsigned long long* found_ = nullptr;
  uint64_t* codes_ = nullptr;
  CodeView view_{};
};

}  // namespace

std::unique_ptr<Device> makeCudaDevice(int rank) { return std::make_unique<CudaDevice>(rank); }

}  // namespace tutti::bench::gpu
