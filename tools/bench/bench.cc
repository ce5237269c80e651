#include "bench/bench.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "bench/json.h"
#include "bench/measure.h"
#include "bench/memcpy.h"
#include "bench/output.h"
#include "bench/plot.h"
#include "bench/row.h"
#include "bench/table.h"
#include "bench/team.h"
#include "bench/units.h"
#include "core/format.h"
#include "exit_codes.h"

namespace tutti::bench {
namespace {

class Run {
 public:
  explicit Run(const Options& options) : options_(options), table_(options.process.isLead()) {}

  Status measureAll(const GetId& getId) {
    const auto timeout = std::chrono::milliseconds(static_cast<int64_t>(options_.timeoutSeconds * 1000));
    const Result<ncclUniqueId> id = getId(timeout);
    if (!id) return id.error();
    const Crew crew = {options_.ranks, options_.process.number * options_.threads, options_.threads};
    Result<std::unique_ptr<Team>> team = Team::start(crew, *id, timeout);
    if (!team) return team.error();
    uint64_t sendBytes = 0;
    uint64_t receiveBytes = 0;
    findLargest(sendBytes, receiveBytes);
    Result<std::unique_ptr<Bench>> bench = Bench::create(**team, options_, sendBytes, receiveBytes);
    if (!bench) return bench.error();
    bench_ = std::move(*bench);
    writeHeader();
    for (const DataType type : options_.types) {
      if (!options_.operation->isReduction) {
        TUTTI_TRY(measureTypes(type, std::nullopt));
        continue;
      }
      for (const RedOp op : options_.redOps) TUTTI_TRY(measureTypes(type, op));
    }
    return {};
  }

  const std::vector<Row>& rows() const { return rows_; }
  TableWriter& table() { return table_; }

  bool hasWrong() const {
    for (const Row& row : rows_) {
      if (row.wrong.value_or(0) != 0) return true;
    }
    return false;
  }

 private:
  struct Timed {
    Call call;
    double timeUs = 0;
  };

  Call makeCall(DataType type, std::optional<RedOp> op, int root, uint64_t count, bool isInPlace) const {
    return Call{options_.operation, type, op, root, count, options_.ranks, isInPlace};
  }

  void findLargest(uint64_t& sendBytes, uint64_t& receiveBytes) {
    for (const DataType type : options_.types) {
      const std::vector<uint64_t> counts = countsOf(options_, type);
      const Call call = makeCall(type, std::nullopt, -1, counts.back(), false);
      sendBytes = std::max(sendBytes, call.sendCount() * sizeOf(type));
      receiveBytes = std::max(receiveBytes, call.receiveCount() * sizeOf(type));
      const size_t ops = options_.operation->isReduction ? options_.redOps.size() : 1;
      sizesToDo_ += counts.size() * ops * options_.roots.size();
    }
  }

  void writeHeader() {
    const Call call = makeCall(options_.types.front(), options_.redOps.empty() ? std::nullopt : std::optional(RedOp::Sum),
                               options_.roots.front(), 1, false);
    const Result<Traffic> traffic = bench_->explainAll(call);
    table_.writeHeader(options_, traffic && !traffic->simd.empty() ? traffic->simd + " reductions" : "");
  }

  Status measureTypes(DataType type, std::optional<RedOp> op) {
    bench_->setPatterns(type, op);
    for (const int root : options_.roots) {
      for (const uint64_t count : countsOf(options_, type)) TUTTI_TRY(measureSize(type, op, root, count));
      TUTTI_TRY(reportTraffic());
    }
    return {};
  }

  Status measureSize(DataType type, std::optional<RedOp> op, int root, uint64_t count) {
    std::optional<Row> forms[2];
    for (const bool isInPlace : {false, true}) {
      if (!(isInPlace ? options_.isInPlace : options_.isOutOfPlace)) continue;
      const Call call = makeCall(type, op, root, count, isInPlace);
      table_.showProgress(format("[{}/{}] {}", sizesDone_ + 1, sizesToDo_, describe(call)));
      const Result<Measurement> measurement = bench_->measure(call);
      if (!measurement) return measurement.error();
      if (!measurement->firstWrong.empty()) table_.complain("wrong: " + measurement->firstWrong);
      const Row row = makeRow(call, *measurement, options_.isChecked);
      forms[isInPlace ? 1 : 0] = row;
      rows_.push_back(row);
      // The plan that tuttiExplain describes is out of place: take that time where there is one.
      if (!isInPlace || !options_.isOutOfPlace) last_ = {call, row.timeUs};
    }
    ++sizesDone_;
    table_.writeRow(forms[0], forms[1]);
    return {};
  }

  /// The latest call's memory traffic against memcpy's; memcpy is measured at most once a run.
  Status reportTraffic() {
    if (!options_.measuresMemcpy || last_.timeUs <= 0 || last_.call.count == 0) return {};
    // The others wait meanwhile, for what they have to agree on.
    if (memcpyRate_.threads == 0 && options_.process.isLead()) {
      table_.showProgress("measuring memcpy");
      Result<MemcpyRate> rate = measureMemcpy();
      if (!rate) return rate.error();
      memcpyRate_ = *rate;
    }
    const Result<Traffic> traffic = bench_->explainAll(last_.call);
    if (!traffic) return traffic.error();
    if (!options_.process.isLead()) return {};
    table_.writeTraffic(last_.call, *traffic, last_.timeUs, memcpyRate_);
    return {};
  }

  const Options& options_;
  TableWriter table_;
  std::unique_ptr<Bench> bench_;
  std::vector<Row> rows_;
  Timed last_;
  MemcpyRate memcpyRate_;
  size_t sizesDone_ = 0;
  size_t sizesToDo_ = 0;
};

}  // namespace

int runBench(const Options& options, const GetId& getId) {
  const auto start = std::chrono::steady_clock::now();
  Result<File> json = openOutput(options.jsonPath);
  Result<File> plot = openOutput(options.plotPath);
  Run run(options);
  for (const Result<File>* file : {&json, &plot}) {
    if (*file) continue;
    run.table().complain(file->error().text());
    return tool::kExitWrong;
  }
  const Status status = run.measureAll(getId);
  if (!status.ok()) run.table().complain(status.text());
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!run.rows().empty()) run.table().writeSummary(run.rows(), seconds);
  // What was measured before a failure is still written.
  const Status wroteJson = writeOutput(std::move(*json), options.jsonPath, toJson(run.rows()));
  const Status wrotePlot = writeOutput(std::move(*plot), options.plotPath, drawSvg(run.rows()));
  for (const Status* wrote : {&wroteJson, &wrotePlot}) {
    if (!wrote->ok()) run.table().complain(wrote->text());
  }
  if (!status.ok()) return tool::kExitError;
  return run.hasWrong() || !wroteJson.ok() || !wrotePlot.ok() ? tool::kExitWrong : 0;
}

}  // namespace tutti::bench
