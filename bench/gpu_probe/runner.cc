#include "runner.h"

#include <algorithm>
#include <cstring>

#include "check.h"

namespace tutti::probe {

using exec::cuda::Launch;
using exec::cuda::Work;

namespace {
constexpr unsigned char kPoison = 0xa5;

const exec::record::Algorithm& algorithmOf(const Job& job) {
  return exec::record::algorithms()[static_cast<size_t>(job.question.algorithm)];
}

std::vector<algo::LayoutView> viewsOf(const Fabric& fabric, int32_t root) {
  std::vector<algo::LayoutView> views;
  for (int32_t r = 0; r < fabric.ranks(); ++r) views.push_back(fabric.layout().view(Rank(r), Rank(root)));
  return views;
}
}  // namespace

/// Where a rank's buffers lie. All copies of a call have their inputs one after the other, and their outputs.
struct Runner::Placed {
  std::byte* in = nullptr;  ///< of copy 0
  std::byte* out = nullptr;
  uint64_t inBytes = 0;
  uint64_t outBytes = 0;
};

Runner::Placed Runner::place(const Job& job, int32_t rank) const {
  const Fabric::Member& m = fabric_.member(rank);
  const Question& q = job.question;
  const uint64_t size = sizeOf(q.reduction.type);
  const auto self = static_cast<uint64_t>(rank);
  Placed p;
  p.inBytes = inputElems(q, fabric_.ranks(), rank) * size;
  p.outBytes = outputElems(q, fabric_.ranks(), rank) * size;
  p.in = m.in + job.offsetElems * size;
  p.out = m.out + job.offsetElems * size;
  if (job.inPlace) {
    const Collective collective = algorithmOf(job).traits.collective;
    if (collective == Collective::AllGather) {
      p.in = p.out + self * q.count * size;
    } else if (collective == Collective::ReduceScatter) {
      p.out = p.in + self * q.count * size;
    } else {
      p.in = p.out;
    }
  }
  return p;
}

uint64_t Runner::sliceBytes(const Job& job, uint64_t pieces) const {
  const exec::cuda::Protocol protocol = exec::cuda::kernelInfo(job.kernel).protocol;
  if (algorithmOf(job).traits.needs == algo::Needs::PeerMemory)
    return carriedBytes(protocol, exec::cuda::shareRoom(protocol, fabric_.config().shareBytes));
  return pieces * carriedBytes(protocol, fabric_.config().slotBytes);
}

/// Everything that may not be done during a launch, or while a stream is captured: pipes and programs.
void Runner::connect(const Job& job) {
  fabric_.connect(algorithmOf(job), Rank(job.question.root), job.kernel, job.channels);
  for (int32_t r = 0; r < fabric_.ranks(); ++r)
    for (int32_t root = 0; root < fabric_.ranks(); ++root) fabric_.program(r, job.question.algorithm, Rank(root), job.kernel);
}

void Runner::enqueue(const Job& job, int32_t rank) {
  const Question& q = job.question;
  const exec::record::Algorithm& algorithm = algorithmOf(job);
  const Placed placed = place(job, rank);
  const Fabric::Member& m = fabric_.member(rank);
  const int32_t ranks = fabric_.ranks();
  Work work;
  work.algorithm = static_cast<uint8_t>(q.algorithm);
  work.geometry =
      algo::makeGeometry(algorithm.traits.division, q.count, algorithm.chunks(ranks), q.reduction.type, job.channels, job.sliceBytes);
  work.type = q.reduction.type;
  work.root = static_cast<uint8_t>(q.root);
  work.op = q.reduction.op;
  work.scaling = q.reduction.scaling;
  if (work.scaling.hasFactor) {
    work.scaling.factor = q.factors[static_cast<size_t>(rank)];
    if (job.factorInMemory) {
      work.factorSource = m.factor;
      work.scaling.factor = ~work.scaling.factor;
    }
  }
  work.program = fabric_.program(rank, q.algorithm, Rank(q.root), job.kernel);
  work.lanes = static_cast<uint8_t>(algorithm.lanes(ranks));
  std::vector<Work> works;
  for (int copy = 0; copy < job.copies; ++copy) {
    work.in = placed.in + static_cast<uint64_t>(copy) * placed.inBytes;
    work.out = placed.out + static_cast<uint64_t>(copy) * placed.outBytes;
    if (algorithm.traits.collective != Collective::SendRecv) {
      works.push_back(work);
      continue;
    }
    // A message to the next rank and one from the rank before, on blocks of their own; to oneself it is a copy.
    work.geometry.slices = std::max(work.geometry.slices, 1);
    work.lanes = 1;
    Work send = work;
    send.root = static_cast<uint8_t>((rank + 1) % ranks);
    send.program = fabric_.program(rank, q.algorithm, Rank((rank + 1) % ranks), job.kernel);
    works.push_back(send);
    if (ranks == 1) continue;
    Work receive = work;
    receive.root = static_cast<uint8_t>((rank + ranks - 1) % ranks);
    receive.program = fabric_.program(rank, q.algorithm, Rank((rank + ranks - 1) % ranks), job.kernel);
    receive.firstLane = 1;
    receive.firstBlock = static_cast<uint16_t>(job.channels);
    works.push_back(receive);
  }
  auto& number = launchOf_[static_cast<size_t>(rank)];
  Launch launch;
  launch.comm = fabric_.view(rank, job.kernel, ++number);
  launch.works = static_cast<int32_t>(works.size());
  launch.type = q.reduction.type;
  exec::cuda::LaunchOptions options;
  options.mayOverlap = job.mayOverlap;
  // The two sides of a message need not run on the same kernel.
  const bool isMessage = algorithm.traits.collective == Collective::SendRecv;
  if (isMessage) launch.comm.wait.board = nullptr;  // ranks do not count each other's messages: those kernels post differently often
  options.mayBeLone = job.mayBeLone && !(isMessage && (rank + job.copies) % 3 == 0);
  for (size_t i = 0; i < works.size(); ++i) {
    if (i < exec::cuda::kInlineWorks) launch.work[i] = works[i];
    options.blocks = std::max(options.blocks, works[i].firstBlock + works[i].blocks());
  }
  const int32_t cluster = exec::cuda::kernelInfo(job.kernel).runsPipes ? job.clusterBlocks : 1;
  options.grid = {(options.blocks + cluster - 1) / cluster * cluster, cluster};
  if (works.size() > exec::cuda::kInlineWorks) {
    const size_t rest = works.size() - exec::cuda::kInlineWorks;
    launch.more = m.works;
    PROBE_CHECK(cudaMemcpyAsync(m.works, works.data() + exec::cuda::kInlineWorks, rest * sizeof(Work), cudaMemcpyHostToDevice, m.stream));
  }
  PROBE_CHECK(exec::cuda::launchKernel(job.kernel, launch, options, m.stream));
}

void Runner::prepare(const Job& job, const std::vector<std::vector<Bytes>>& inputs) {
  const uint64_t size = sizeOf(job.question.reduction.type);
  for (int32_t r = 0; r < fabric_.ranks(); ++r) {
    const Fabric::Member& m = fabric_.member(r);
    const Placed p = place(job, r);
    PROBE_CHECK(cudaSetDevice(m.device));
    const uint64_t outBlock = fabric_.config().bufferBytes;
    PROBE_CHECK(cudaMemsetAsync(m.out - Fabric::kGuardBytes, kPoison, outBlock + 2 * Fabric::kGuardBytes, m.stream));
    for (size_t copy = 0; copy < inputs.size(); ++copy) {
      const Bytes& in = inputs[copy][static_cast<size_t>(r)];
      if (!in.empty()) PROBE_CHECK(cudaMemcpyAsync(p.in + copy * p.inBytes, in.data(), in.size(), cudaMemcpyHostToDevice, m.stream));
    }
    if (job.factorInMemory)
      PROBE_CHECK(cudaMemcpyAsync(m.factor, &job.question.factors[static_cast<size_t>(r)], size, cudaMemcpyHostToDevice, m.stream));
  }
  for (int32_t r = 0; r < fabric_.ranks(); ++r) PROBE_CHECK(cudaStreamSynchronize(fabric_.member(r).stream));
}

Outcome Runner::run(const Job& job, uint64_t seed, int32_t absent) {
  const Question& q = job.question;
  const int32_t ranks = fabric_.ranks();
  launchOf_.resize(static_cast<size_t>(ranks), launches_);
  connect(job);
  std::vector<std::vector<Bytes>> inputs(static_cast<size_t>(job.copies));
  for (size_t copy = 0; copy < inputs.size(); ++copy)
    for (int32_t r = 0; r < ranks; ++r)
      inputs[copy].push_back(makeValues(q.reduction.type, inputElems(q, ranks, r), seed + 1000 * copy + static_cast<uint64_t>(r)));
  prepare(job, inputs);
  for (int32_t r = 0; r < ranks; ++r) {
    PROBE_CHECK(cudaSetDevice(fabric_.member(r).device));
    if (r != absent) enqueue(job, r);
  }
  Outcome outcome;
  outcome.ran = fabric_.await();
  if (!outcome.ran || absent >= 0) return outcome;

  std::vector<std::vector<Bytes>> wanted;
  for (const auto& in : inputs) wanted.push_back(expectedOutputs(q, in, viewsOf(fabric_, q.root)));
  for (int32_t r = 0; r < ranks; ++r) {
    const Fabric::Member& m = fabric_.member(r);
    const Placed p = place(job, r);
    const bool inInput = p.out >= m.in - Fabric::kGuardBytes && p.out < m.in + fabric_.config().bufferBytes;
    std::byte* const base = (inInput ? m.in : m.out) - Fabric::kGuardBytes;
    const uint64_t whole = fabric_.config().bufferBytes + 2 * Fabric::kGuardBytes;
    Bytes got(whole);
    PROBE_CHECK(cudaSetDevice(m.device));
    PROBE_CHECK(cudaMemcpy(got.data(), base, whole, cudaMemcpyDeviceToHost));
    uint64_t begin = static_cast<uint64_t>(p.out - base);
    bool isWrong = false;
    for (const auto& outputs : wanted) {
      const Bytes& want = outputs[static_cast<size_t>(r)];
      const auto difference = std::mismatch(want.begin(), want.end(), got.begin() + static_cast<ptrdiff_t>(begin));
      if (difference.first != want.end()) {
        if (!isWrong && outcome.wrongRanks == 0) outcome.firstWrong = static_cast<uint64_t>(difference.first - want.begin());
        isWrong = true;
      }
      begin += want.size();
    }
    outcome.wrongRanks += isWrong ? 1 : 0;
    // Everything else is poison, but for inputs that lie in the same buffer.
    if (job.inPlace) continue;
    const uint64_t from = static_cast<uint64_t>(p.out - base);
    for (uint64_t i = 0; i < whole; ++i)
      if ((i < from || i >= begin) && got[i] != std::byte{kPoison}) ++outcome.overwritten;
  }
  launches_ = *std::max_element(launchOf_.begin(), launchOf_.end());
  return outcome;
}

}  // namespace tutti::probe
