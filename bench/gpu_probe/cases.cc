#include "cases.h"

#include <algorithm>
#include <span>

#include "core/format.h"
#include "exec/cuda/lone.h"

namespace tutti::probe {
namespace {

constexpr uint64_t kCounts[] = {1, 2, 3, 5, 7, 16, 17, 31, 33, 64, 255, 1000, 1023, 4097, 9999, 16385, 30011};

/// Sum, product, max, min, average, pre-multiplied sum.
constexpr int kOperations = 6;

bool fitsKernel(const exec::record::Algorithm& algorithm, KernelId kernel, const connect::Layout& layout, Rank root) {
  if (!algorithm.traits.isForDevices()) return false;
  const auto place = static_cast<uint8_t>(&algorithm - exec::record::algorithms().data());
  if (kernel == KernelId::LineWindow && !exec::cuda::mayBeLone(place)) return false;
  const exec::record::Program program = algorithm.record(layout.view(root, root));
  return exec::cuda::packProgram(kernel, algorithm.traits.needs, program.lanes, root).has_value();
}

void setOperation(Question& q, int operation, int32_t ranks, std::mt19937_64& random) {
  Reduction& r = q.reduction;
  r.op = operation < kNumReduceOps ? static_cast<ReduceOp>(operation) : ReduceOp::Sum;
  if (operation == 4 && isInteger(r.type)) r.scaling.divisor = ranks;
  if (operation == 5 || (operation == 4 && !isInteger(r.type))) {
    r.scaling.hasFactor = true;
    for (int32_t i = 0; i < ranks; ++i) {
      uint64_t bits = 0;
      const Bytes value = makeValues(r.type, 1, random());
      for (size_t b = 0; b < value.size(); ++b) bits |= static_cast<uint64_t>(value[b]) << (8 * b);
      q.factors.push_back(operation == 4 ? inverseOf(r.type, ranks) : bits);
    }
  }
}

bool mayBeInPlace(Collective collective) {
  return reduces(collective) || collective == Collective::AllGather || collective == Collective::Broadcast;
}

}  // namespace

std::vector<Job> makeJobs(const Fabric& fabric, const Selection& selection, std::mt19937_64& random) {
  const std::span<const exec::record::Algorithm> all = exec::record::algorithms();
  const Runner runner(const_cast<Fabric&>(fabric));  // asked for sizes only
  const int32_t ranks = fabric.ranks();
  std::vector<Job> jobs;
  int combination = 0;
  for (size_t a = 0; a < all.size(); ++a) {
    const algo::Traits& traits = all[a].traits;
    if (!selection.algorithm.empty() && traits.name != selection.algorithm) continue;
    for (int k = 0; k < exec::cuda::kNumKernels; ++k) {
      const auto kernel = static_cast<KernelId>(k);
      if (!selection.kernel.empty() && exec::cuda::kernelInfo(kernel).name != selection.kernel) continue;
      if (!fitsKernel(all[a], kernel, fabric.layout(), Rank(0))) continue;
      for (int t = 0; t < kNumDataTypes; ++t) {
        for (int o = 0; o < (reduces(traits.collective) ? kOperations : 1); ++o) {
          if (combination++ % selection.every != 0) continue;
          for (int sample = 0; sample < selection.samples; ++sample) {
            Job job;
            job.kernel = kernel;
            Question& q = job.question;
            q.algorithm = static_cast<int>(a);
            q.reduction.type = static_cast<DataType>(t);
            q.count = kCounts[random() % std::size(kCounts)];
            if (selection.most != 0) q.count = std::min(q.count, selection.most);
            if (traits.division == algo::Division::Blocks) q.count = std::max<uint64_t>(1, q.count / static_cast<uint64_t>(ranks));
            q.root = hasRoot(traits.collective) && random() % 2 != 0 ? ranks - 1 : 0;
            setOperation(q, o, ranks, random);
            job.factorInMemory = q.reduction.scaling.hasFactor && random() % 2 != 0;
            job.channels = static_cast<int32_t>(1 + random() % 2) * (all[a].lanes(ranks) > 4 ? 1 : 2);
            job.channels = std::min(job.channels, fabric.config().channels);
            const uint64_t pieces = static_cast<uint64_t>(fabric.config().slots) / static_cast<uint64_t>(std::max(traits.minSlots, 2));
            job.sliceBytes = runner.sliceBytes(job, 1 + random() % std::max<uint64_t>(pieces, 1));
            job.inPlace = mayBeInPlace(traits.collective) && random() % 2 != 0;
            job.offsetElems = random() % 3;
            job.mayOverlap = random() % 2 != 0;
            job.mayBeLone = random() % 4 != 0;
            job.clusterBlocks = selection.cluster > 0 ? selection.cluster : 1 << random() % 3;
            const bool fits = q.count * static_cast<uint64_t>(ranks) * sizeOf(q.reduction.type) * 6 < fabric.config().bufferBytes;
            const bool isPlain = traits.collective == Collective::AllReduce || traits.collective == Collective::SendRecv;
            job.copies = isPlain && fits && kernel != KernelId::LineWindow && random() % 4 == 0 ? 1 + static_cast<int>(random() % 6) : 1;
            jobs.push_back(job);
          }
        }
      }
    }
  }
  std::shuffle(jobs.begin(), jobs.end(), random);
  return jobs;
}

std::string describe(const Job& job) {
  const exec::record::Algorithm& algorithm = exec::record::algorithms()[static_cast<size_t>(job.question.algorithm)];
  const Reduction& r = job.question.reduction;
  return format("{} {} on {}, {} {}{}{}, count {}, root {}, channels {}, clusters of {}, slice {}, offset {}{}{}{}{}, copies {}",
                algorithm.traits.name,
                name(algorithm.traits.collective), exec::cuda::kernelInfo(job.kernel).name, name(r.type), name(r.op),
                r.scaling.hasFactor ? " scaled" : "", r.scaling.divisor > 1 ? " divided" : "", job.question.count, job.question.root,
                job.channels, job.clusterBlocks, job.sliceBytes, job.offsetElems, job.inPlace ? ", in place" : "",
                job.factorInMemory ? ", factor in memory" : "", job.mayOverlap ? ", overlapping" : "", job.mayBeLone ? "" : ", not lone",
                job.copies);
}

int findAlgorithm(const std::string& algorithmName, const std::string& collective) {
  const std::span<const exec::record::Algorithm> all = exec::record::algorithms();
  for (size_t a = 0; a < all.size(); ++a)
    if (all[a].traits.name == algorithmName && name(all[a].traits.collective) == collective) return static_cast<int>(a);
  return -1;
}

}  // namespace tutti::probe
