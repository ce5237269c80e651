#include "bench/row.h"

namespace tutti::bench {

Row makeRow(const Call& call, const Measurement& measurement, bool isChecked) {
  Row row;
  row.op = call.operation->name;
  row.type = name(call.type);
  row.redOp = call.redOp ? std::string(name(*call.redOp)) : "none";
  row.root = call.root;
  row.ranks = call.ranks;
  row.count = call.count;
  row.bytes = call.bytes();
  row.isInPlace = call.isInPlace;
  row.timeUs = measurement.timing.medianUs;
  row.p99Us = measurement.timing.p99Us;
  // Bytes per microsecond are 10^6 bytes a second.
  row.algbwGBps = row.timeUs > 0 ? static_cast<double>(row.bytes) / row.timeUs / 1e3 : 0;
  row.busbwGBps = row.algbwGBps * call.operation->busFactor(call.ranks);
  if (isChecked) row.wrong = measurement.wrong;
  return row;
}

}  // namespace tutti::bench
