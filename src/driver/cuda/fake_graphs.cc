// The fake's captures and graphs.
#include <algorithm>

#include "driver/cuda/fake_driver.h"

namespace tutti::driver::cuda {
namespace {

/// What the documentation calls potentially unsafe, and what it says nothing of: all that may wait for the device or change its memory.
bool isUnsafe(Call call) {
  switch (call) {
    case Call::ctxEnablePeerAccess:
    case Call::memCreate:
    case Call::memRelease:
    case Call::memAddressReserve:
    case Call::memAddressFree:
    case Call::memMap:
    case Call::memUnmap:
    case Call::memSetAccess:
    case Call::memAlloc:
    case Call::memFree:
    case Call::memHostRegister:
    case Call::memHostUnregister:
    case Call::ipcOpenMemHandle:
    case Call::ipcCloseMemHandle:
    case Call::streamCreate:
    case Call::streamDestroy:
    case Call::streamQuery:
    case Call::streamSynchronize:
    case Call::eventQuery:
    case Call::eventSynchronize: return true;
    default: return false;
  }
}

}  // namespace

Error FakeDriver::breakCapture(uint64_t id, Error why) {
  captures_.at(id).status = CaptureStatus::Invalidated;
  return why;
}

Error FakeDriver::permit(Call call) {
  if (captures_.empty() || !isUnsafe(call)) return Error::Success;
  const auto own = modes_.find(std::this_thread::get_id());
  const CaptureMode mode = own == modes_.end() ? CaptureMode::Global : own->second;
  if (mode == CaptureMode::Relaxed) return Error::Success;
  Error refused = Error::Success;
  for (auto& [id, capture] : captures_) {
    const bool isMine = capture.thread == std::this_thread::get_id();
    const bool forbids = isMine ? capture.mode != CaptureMode::Relaxed : mode == CaptureMode::Global && capture.mode == CaptureMode::Global;
    if (forbids) refused = breakCapture(id, Error::StreamCaptureUnsupported);
  }
  return refused;
}

Error FakeDriver::beginCapture(Stream stream, CaptureMode mode) {
  if (!isStream(stream)) return Error::InvalidHandle;
  if (reinterpret_cast<uintptr_t>(stream) <= kLegacyStream) return Error::StreamCaptureUnsupported;
  if (isCapturing(stream)) return Error::IllegalState;
  const auto graph = reinterpret_cast<Graph>(++lastObject_);
  graphs_[graph] = {};
  captures_[++lastCapture_] = {CaptureStatus::Active, mode, std::this_thread::get_id(), stream, graph};
  captureOf_[stream] = {lastCapture_, {}};
  return Error::Success;
}

Error FakeDriver::endCapture(Stream stream, Graph* graph) {
  const auto found = captureOf_.find(stream);
  if (found == captureOf_.end()) return Error::IllegalState;
  const uint64_t id = found->second.id;
  const Capture capture = captures_.at(id);
  if (capture.origin != stream) return Error::IllegalState;
  const GraphState& state = graphs_.at(capture.graph);
  // What other streams of the capture have done last must be before what the origin has done last.
  bool isJoined = true;
  for (const auto& [other, captured] : captureOf_) {
    if (captured.id != id || other == stream) continue;
    for (const GraphNode node : captured.after)
      isJoined = isJoined && std::any_of(found->second.after.begin(), found->second.after.end(),
                                         [&](GraphNode last) { return last == node || follows(state, last, node); });
  }
  std::erase_if(captureOf_, [&](const auto& entry) { return entry.second.id == id; });
  captures_.erase(id);
  *graph = capture.graph;
  if (capture.status == CaptureStatus::Active && isJoined) return Error::Success;
  (void)destroyGraph(*graph);
  *graph = nullptr;
  return isJoined ? Error::StreamCaptureInvalidated : Error::StreamCaptureUnjoined;
}

bool FakeDriver::follows(const GraphState& graph, GraphNode later, GraphNode earlier) const {
  std::set<GraphNode> seen;
  std::vector<GraphNode> open{later};
  while (!open.empty()) {
    const GraphNode node = open.back();
    open.pop_back();
    for (const GraphNode before : graph.nodes.at(node).after) {
      if (before == earlier) return true;
      if (seen.insert(before).second) open.push_back(before);
    }
  }
  return false;
}

FakeShape FakeDriver::shape(Graph graph) const {
  using Kind = Node::Kind;
  const GraphState& state = graphs_.at(graph);
  FakeShape shape;
  for (const auto& [a, first] : state.nodes) {
    shape.works += first.kind == Kind::Work ? 1 : 0;
    shape.mostEdges = std::max(shape.mostEdges, first.after.size());
    shape.waits += first.kind == Kind::Wait ? 1 : 0;
    shape.records += first.kind == Kind::Record ? 1 : 0;
    for (const auto& [b, second] : state.nodes) {
      if (a != b && first.kind == Kind::Work && second.kind == Kind::Work)
        shape.isChain = shape.isChain && (follows(state, a, b) || follows(state, b, a));
      if (first.kind == Kind::Wait && second.kind == Kind::Work) shape.isFenced = shape.isFenced && follows(state, b, a);
      if (first.kind == Kind::Work && second.kind == Kind::Record) shape.isFenced = shape.isFenced && follows(state, b, a);
    }
  }
  return shape;
}

GraphNode FakeDriver::addNode(Graph graph, Node node) {
  const auto made = reinterpret_cast<GraphNode>(++lastObject_);
  graphs_.at(graph).nodes[made] = std::move(node);
  return made;
}

void FakeDriver::capture(Stream stream, FakeQueues::Work work) {
  Captured& captured = captureOf_.at(stream);
  Node node{Node::Kind::Work, {captured.after.begin(), captured.after.end()}, std::move(work), nullptr};
  captured.after = {addNode(captures_.at(captured.id).graph, std::move(node))};
}

/// A node whose predecessors have all run is next; of several, the one that was made first.
Error FakeDriver::launchGraph(Graph graph, Stream stream) {
  const auto found = graphs_.find(graph);
  if (found == graphs_.end() || !isStream(stream)) return Error::InvalidHandle;
  const FakeQueues::Ref queue = queueOf(stream);
  std::set<GraphNode> over;
  const auto& nodes = found->second.nodes;
  while (over.size() < nodes.size()) {
    const auto next = std::find_if(nodes.begin(), nodes.end(), [&](const auto& entry) {
      return !over.contains(entry.first) && std::includes(over.begin(), over.end(), entry.second.after.begin(), entry.second.after.end());
    });
    if (next == nodes.end()) return Error::InvalidValue;  // a cycle
    over.insert(next->first);
    const Node& node = next->second;
    if (node.kind == Node::Kind::Work) {
      queues_.put(queue, node.work);
      continue;
    }
    const auto event = events_.find(node.event);
    if (event == events_.end()) return Error::InvalidHandle;
    if (node.kind == Node::Kind::Wait) {
      queues_.putWait(queue, event->second.mark);
    } else {
      event->second = {queues_.mark(queue), {}};
    }
  }
  return Error::Success;
}

Error FakeDriver::destroyGraph(Graph graph) {
  const auto found = graphs_.find(graph);
  if (found == graphs_.end()) return Error::InvalidHandle;
  for (const UserObject object : found->second.kept) releaseObject(object);
  graphs_.erase(found);
  return Error::Success;
}

Error FakeDriver::streamGetCaptureInfo(Stream stream, CaptureStatus* status, uint64_t* id, Graph* graph, const GraphNode** after,
                                       size_t* count) {
  if (!isStream(stream)) return Error::InvalidHandle;
  const auto found = captureOf_.find(stream);
  *status = found == captureOf_.end() ? CaptureStatus::None : captures_.at(found->second.id).status;
  if (*status != CaptureStatus::Active) return Error::Success;
  *id = found->second.id;
  *graph = captures_.at(*id).graph;
  *after = found->second.after.data();
  *count = found->second.after.size();
  return Error::Success;
}

Error FakeDriver::streamUpdateCaptureDependencies(Stream stream, GraphNode* nodes, size_t count, uint32_t flags) {
  const auto found = captureOf_.find(stream);
  if (found == captureOf_.end()) return Error::IllegalState;
  if (flags != kAddCaptureDependencies) return Error::InvalidValue;
  const GraphState& graph = graphs_.at(captures_.at(found->second.id).graph);
  for (size_t i = 0; i < count; ++i) {
    if (!graph.nodes.contains(nodes[i])) return Error::InvalidValue;
    auto& after = found->second.after;
    if (std::find(after.begin(), after.end(), nodes[i]) == after.end()) after.push_back(nodes[i]);
  }
  return Error::Success;
}

Error FakeDriver::addEventNode(GraphNode* made, Graph graph, const GraphNode* after, size_t count, Event event, Node::Kind kind) {
  const auto found = graphs_.find(graph);
  if (found == graphs_.end() || !events_.contains(event)) return Error::InvalidHandle;
  Node node{kind, {after, after + count}, nullptr, event};
  for (const GraphNode before : node.after)
    if (!found->second.nodes.contains(before)) return Error::InvalidValue;
  *made = addNode(graph, std::move(node));
  return Error::Success;
}

Error FakeDriver::graphAddEventRecordNode(GraphNode* node, Graph graph, const GraphNode* after, size_t count, Event event) {
  return addEventNode(node, graph, after, count, event, Node::Kind::Record);
}

Error FakeDriver::graphAddEventWaitNode(GraphNode* node, Graph graph, const GraphNode* after, size_t count, Event event) {
  return addEventNode(node, graph, after, count, event, Node::Kind::Wait);
}

/// An edge that is there already is refused, as the driver does.
Error FakeDriver::graphAddDependencies(Graph graph, const GraphNode* from, const GraphNode* to, size_t count) {
  const auto found = graphs_.find(graph);
  if (found == graphs_.end()) return Error::InvalidHandle;
  auto& nodes = found->second.nodes;
  for (size_t i = 0; i < count; ++i) {
    if (!nodes.contains(from[i]) || !nodes.contains(to[i]) || from[i] == to[i]) return Error::InvalidValue;
    if (!nodes.at(to[i]).after.insert(from[i]).second) return Error::InvalidValue;
  }
  return Error::Success;
}

/// An edge that is not there is refused, as the driver does.
Error FakeDriver::graphRemoveDependencies(Graph graph, const GraphNode* from, const GraphNode* to, size_t count) {
  const auto found = graphs_.find(graph);
  if (found == graphs_.end()) return Error::InvalidHandle;
  auto& nodes = found->second.nodes;
  for (size_t i = 0; i < count; ++i)
    if (!nodes.contains(to[i]) || nodes.at(to[i]).after.erase(from[i]) == 0) return Error::InvalidValue;
  return Error::Success;
}

Error FakeDriver::userObjectCreate(UserObject* object, void* what, HostFunction destroy, uint32_t references, uint32_t flags) {
  if (destroy == nullptr || references == 0 || flags != kUserObjectNoDestructorSync) return Error::InvalidValue;
  *object = reinterpret_cast<UserObject>(++lastObject_);
  objects_[*object] = {[what, destroy] { destroy(what); }, references};
  return Error::Success;
}

void FakeDriver::releaseObject(UserObject object) {
  const auto found = objects_.find(object);
  if (--found->second.references > 0) return;
  destroyed_.push_back(std::move(found->second.destroy));
  objects_.erase(found);
}

Error FakeDriver::userObjectRelease(UserObject object, uint32_t count) {
  if (!objects_.contains(object) || count != 1) return Error::InvalidValue;
  releaseObject(object);
  return Error::Success;
}

Error FakeDriver::graphRetainUserObject(Graph graph, UserObject object, uint32_t count, uint32_t flags) {
  const auto found = graphs_.find(graph);
  if (found == graphs_.end() || !objects_.contains(object) || count != 1) return Error::InvalidHandle;
  if (flags != kUserObjectMove) ++objects_.at(object).references;
  found->second.kept.push_back(object);
  return Error::Success;
}

}  // namespace tutti::driver::cuda
