// The part of Driver that deals with graphs.
#include <vector>

#include "driver/cuda/driver.h"

namespace tutti::driver::cuda {
namespace {

const void* shown(const void* handle) { return handle; }

}  // namespace

Result<GraphNode> Driver::addWait(Graph graph, Event event) {
  GraphNode node = nullptr;
  const Error error = api_->graphAddEventWaitNode(&node, graph, nullptr, 0, event);
  return checked(error, node, Call::graphAddEventWaitNode, "graph {}, event {}", shown(graph), shown(event));
}

Result<GraphNode> Driver::addRecord(Graph graph, std::span<const GraphNode> after, Event event) {
  GraphNode node = nullptr;
  const Error error = api_->graphAddEventRecordNode(&node, graph, after.data(), after.size(), event);
  return checked(error, node, Call::graphAddEventRecordNode, "graph {}, event {}", shown(graph), shown(event));
}

Status Driver::addDependencies(Graph graph, std::span<const GraphNode> from, GraphNode to) {
  const std::vector<GraphNode> targets(from.size(), to);
  return check(api_->graphAddDependencies(graph, from.data(), targets.data(), from.size()), Call::graphAddDependencies,
               "graph {}, {} nodes", shown(graph), from.size());
}

Status Driver::removeDependencies(Graph graph, std::span<const GraphNode> from, GraphNode to) {
  const std::vector<GraphNode> targets(from.size(), to);
  return check(api_->graphRemoveDependencies(graph, from.data(), targets.data(), from.size()), Call::graphRemoveDependencies,
               "graph {}, {} nodes", shown(graph), from.size());
}

Status Driver::follow(Stream stream, std::span<const GraphNode> nodes) {
  std::vector<GraphNode> copy(nodes.begin(), nodes.end());  // the driver's pointer is not const
  return check(api_->streamUpdateCaptureDependencies(stream, copy.data(), copy.size(), kAddCaptureDependencies),
               Call::streamUpdateCaptureDependencies, "stream {}, {} nodes", shown(stream), copy.size());
}

Status Driver::keepWith(Graph graph, void* what, HostFunction destroy) {
  UserObject object = nullptr;
  Status created = check(api_->userObjectCreate(&object, what, destroy, 1, kUserObjectNoDestructorSync), Call::userObjectCreate, "");
  if (!created.ok()) {
    destroy(what);
    return created;
  }
  Status kept =
      check(api_->graphRetainUserObject(graph, object, 1, kUserObjectMove), Call::graphRetainUserObject, "graph {}", shown(graph));
  if (!kept.ok()) lose(api_->userObjectRelease(object, 1), Call::userObjectRelease, "");
  return kept;
}

}  // namespace tutti::driver::cuda
