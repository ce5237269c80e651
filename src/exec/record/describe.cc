#include "exec/record/describe.h"

#include "core/format.h"

namespace tutti::exec::record {
namespace {

using algo::Buffer;

std::string_view pipeVerb(const Step& s) {
  const bool from = s.from.count > 0;
  const bool to = s.to.count > 0;
  const bool dst = s.dst.buffer != Buffer::None;
  if (s.reduce) {
    if (!from) return dst ? "reduceCopy" : "contribute";
    const bool own = s.src.buffer != Buffer::None;
    if (!dst) return own ? "recvReduceSend" : "recvCombineSend";
    if (!own) return to ? "recvCombineCopySend" : "recvCombineCopy";
    return to ? "recvReduceCopySend" : "recvReduceCopy";
  }
  if (from) return to ? "recvCopySend" : "recvCopy";
  if (!to) return "copy";
  return dst ? "copySend" : "send";
}

void addPeers(std::string& text, std::string_view word, const algo::Peers& peers) {
  if (peers.count == 0) return;
  text += format(" {}", word);
  for (int32_t i = 0; i < peers.count; ++i) text += format("{}{}", i == 0 ? ' ' : ',', peers.at(i).value);
}

void addChunk(std::string& text, const algo::ChunkRef& ref) {
  if (ref.buffer != Buffer::None) text += format(" {}[{}]", ref.buffer == Buffer::In ? "in" : "out", ref.chunk);
}

}  // namespace

std::string_view verbOf(const Step& step) {
  switch (step.kind) {
    case Kind::Pipe: return pipeVerb(step);
    case Kind::Store: return step.reduce ? "store" : "put";
    case Kind::Arrive: return "arrive";
    case Kind::Await: return "await";
    case Kind::LoadReduce: return "loadReduce";
    case Kind::Load: return "load";
    case Kind::Give: return "give";
    case Kind::Take: return "take";
  }
  return "?";
}

std::string describe(const Step& step) {
  std::string text(verbOf(step));
  addPeers(text, "from", step.from);
  addChunk(text, step.src);
  addChunk(text, step.dst);
  addPeers(text, "to", step.to);
  if (step.lane >= 0) text += format(" lane {}", static_cast<int>(step.lane));
  return text;
}

}  // namespace tutti::exec::record
