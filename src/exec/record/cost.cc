#include "exec/record/cost.h"

namespace tutti::exec::record {
namespace {

using algo::Buffer;

/// One pipe step of `bytes`: reads the local source and every received slot, writes the destination and every slot sent.
Traffic pipeTraffic(const Step& step, uint64_t bytes, bool passByReference) {
  Traffic t;
  const auto from = static_cast<uint64_t>(step.from.count);
  const auto to = static_cast<uint64_t>(step.to.count);
  const bool hasSource = step.src.buffer != Buffer::None;
  const bool hasDestination = step.dst.buffer != Buffer::None;
  // What is sent lies in the destination or, moved bit for bit, in the source: then nothing need be written for the pipe.
  const bool sendsFromCaller = hasDestination || from == 0;
  const uint64_t slotWrites = to == 0 || (passByReference && sendsFromCaller) ? 0 : to;
  const bool onlySends = !hasDestination && from == 0 && slotWrites == 0;
  t.bytesRead = bytes * (from + (hasSource && !onlySends ? 1 : 0));
  t.bytesWritten = bytes * ((hasDestination ? 1 : 0) + slotWrites);
  t.bytesSent = bytes * to;
  t.messages = to;
  return t;
}

}  // namespace

Traffic& Traffic::operator+=(const Traffic& other) {
  bytesRead += other.bytesRead;
  bytesWritten += other.bytesWritten;
  bytesSent += other.bytesSent;
  messages += other.messages;
  steps += other.steps;
  return *this;
}

Traffic countTraffic(const Program& program, const algo::Geometry& geometry, uint32_t elementBytes, int32_t channel, int32_t ranks,
                     bool passByReference, Loans loans) {
  Traffic sum;
  for (int32_t slice = 0; slice < geometry.slices; ++slice) {
    for (const auto& lane : program.lanes) {
      for (const Step& step : lane) {
        const algo::ChunkRef ref = step.dst.buffer != Buffer::None ? step.dst : step.src;
        const uint64_t bytes = geometry.range(ref.chunk, channel, slice).elems * elementBytes;
        Traffic t;
        if (step.kind == Kind::Pipe) t = pipeTraffic(step, bytes, passByReference);
        if (step.kind == Kind::Store) t = loans != Loans::None ? Traffic{0, 0, bytes, 1, 0} : Traffic{bytes, bytes, bytes, 1, 0};
        const uint64_t all = bytes * static_cast<uint64_t>(ranks);
        const bool isPlaced = loans == Loans::Placed;
        if (step.kind == Kind::LoadReduce) t = {all, isPlaced ? all : bytes, 0, 0, 0};
        if (step.kind == Kind::Load && !isPlaced) t = {bytes, bytes, 0, 0, 0};
        t.steps = 1;
        sum += t;
      }
    }
  }
  return sum;
}

}  // namespace tutti::exec::record
