#include "peers/report.h"

#include <thread>

#include "bench/units.h"
#include "core/format.h"

namespace tutti::bench {

std::string tableHead(const Call& call, const std::string& peer, const std::string& buffers, int rounds) {
  std::string work(name(call.type));
  if (call.redOp) work += format(" {}", name(*call.redOp));
  return format("# {} of {}{}, {} processes, {} cores, {}; medians of {} rounds in turns, inputs rewritten before each call\n",
                call.operation->name, work, call.isInPlace ? ", in place" : "", call.ranks, std::thread::hardware_concurrency(), buffers,
                rounds) +
         format("# {:>10} {:>12} {:>18} {:>8} {:>8}\n", "size", "tutti (us)", peer + " (us)", "ratio", "#wrong");
}

std::string tableLine(const Row& tutti, const Row& peer) {
  return format("  {:>10} {:>12} {:>18} {:>8.2f} {:>8}\n", formatBytes(tutti.bytes), formatNumber(tutti.timeUs), formatNumber(peer.timeUs),
                peer.timeUs / tutti.timeUs, tutti.wrong.value_or(0) + peer.wrong.value_or(0));
}

}  // namespace tutti::bench
