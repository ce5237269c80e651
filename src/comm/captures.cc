#include "comm/captures.h"

#include <algorithm>
#include <utility>

namespace tutti::comm {

using driver::cuda::CaptureInfo;
using driver::cuda::Event;
using driver::cuda::GraphNode;
using driver::cuda::Stream;
using transport::device::GraphMark;

namespace {

struct HeldByGraph {
  std::shared_ptr<GraphMark> mark;
  std::shared_ptr<std::atomic<bool>> hasLost;
};

/// Called by the driver on a thread of its own.
void graphIsGone(void* data) {
  const std::unique_ptr<HeldByGraph> held(static_cast<HeldByGraph*>(data));
  held->mark->isGone.store(true, std::memory_order_release);  // pairs with GraphMark's readers
  held->hasLost->store(true, std::memory_order_release);      // pairs with hasLost()
}

bool isGone(const std::shared_ptr<GraphMark>& mark) { return mark->isGone.load(std::memory_order_acquire); }

}  // namespace

/// The number of a capture is never used twice, so what was known of a graph that is gone is no use.
Result<Captures::Graph*> Captures::at(const CaptureInfo& capture) {
  const auto known = std::find_if(graphs_.begin(), graphs_.end(), [&](const Graph& graph) { return graph.capture == capture.id; });
  if (known != graphs_.end()) return &*known;
  std::erase_if(graphs_, [](const Graph& graph) { return isGone(graph.mark); });
  Graph made;
  made.capture = capture.id;
  made.mark = std::make_shared<GraphMark>();
  auto held = std::make_unique<HeldByGraph>(HeldByGraph{made.mark, hasLost_});
  if (Status status = driver_.keepWith(capture.graph, held.release(), graphIsGone); !status.ok()) return tl::unexpected(std::move(status));
  graphs_.push_back(std::move(made));
  return &graphs_.back();
}

Status Captures::enter(Stream stream, const CaptureInfo& capture, Event ended) {
  const auto graph = at(capture);
  if (!graph) return graph.error();
  if (!(*graph)->tail.empty()) return driver_.follow(stream, (*graph)->tail);
  if (ended == nullptr) return {};
  const auto wait = driver_.addWait(capture.graph, ended);
  if (!wait) return wait.error();
  return driver_.follow(stream, {&*wait, 1});
}

Status Captures::leave(Stream stream, Event ended) {
  const auto capture = driver_.captureInfo(stream);
  if (!capture) return capture.error();
  if (!capture->isActive())
    return error(Code::UnhandledCudaError, "the capture of stream {} was broken while a call was captured",
                 static_cast<const void*>(stream));
  const auto graph = at(*capture);
  if (!graph) return graph.error();
  Graph& g = **graph;
  const std::vector<GraphNode> before = std::exchange(g.tail, {capture->after.begin(), capture->after.end()});
  if (ended == nullptr) return {};
  // The leaf follows the latest work alone, which follows those before: the launch of a node that follows some sixty others would wait for
  // the GPU, and that for the graph of a peer that the same thread launches next.
  if (g.record != nullptr) {
    TUTTI_TRY(driver_.addDependencies(capture->graph, g.tail, g.record));
    return driver_.removeDependencies(capture->graph, before, g.record);
  }
  const auto record = driver_.addRecord(capture->graph, g.tail, ended);
  if (!record) return record.error();
  g.record = *record;
  return {};
}

std::shared_ptr<GraphMark> Captures::markOf(const CaptureInfo& capture) const {
  const auto known = std::find_if(graphs_.begin(), graphs_.end(), [&](const Graph& graph) { return graph.capture == capture.id; });
  return known == graphs_.end() ? nullptr : known->mark;
}

bool Captures::hasLost() {
  return hasLost_->load(std::memory_order_relaxed) && hasLost_->exchange(false, std::memory_order_acquire);  // pairs with graphIsGone()
}

std::vector<std::shared_ptr<GraphMark>> Captures::alive() {
  std::vector<std::shared_ptr<GraphMark>> marks;
  for (const Graph& graph : graphs_)
    if (!isGone(graph.mark)) marks.push_back(graph.mark);
  return marks;
}

}  // namespace tutti::comm
