#include "topo/graph_xml.h"

#include <algorithm>
#include <utility>

#include "core/format.h"
#include "topo/feasible.h"

namespace tutti::topo {

namespace {

constexpr float kMostGBps = 1e6F;

Pattern usualPattern(GraphKind kind) {
  switch (kind) {
    case GraphKind::Ring: return Pattern::Ring;
    case GraphKind::Tree: return Pattern::BalancedTree;
    case GraphKind::CollnetChain: return Pattern::Tree;
    case GraphKind::Nvls: return Pattern::Nvls;
    case GraphKind::CollnetDirect: return Pattern::CollnetDirect;
  }
  return Pattern::Ring;
}

bool mayHave(GraphKind kind, Pattern pattern) { return kind == GraphKind::Tree ? isTree(pattern) : pattern == usualPattern(kind); }

/// Host devices have no dev of their own: their rank stands for it, as machine/host_layout.h reads it.
uint64_t devId(const System& system, NodeId node) {
  const Node& it = system.at(node);
  if (it.kind == NodeKind::Host) return static_cast<uint64_t>(it.host.rank);
  return makeNodeId(systemOf(it.id), static_cast<uint64_t>(it.kind == NodeKind::Gpu ? it.gpu.dev : it.net.dev));
}

class GraphReader {
 public:
  GraphReader(const Document& file, const System& system, const SearchSettings& settings)
      : file_(file), system_(system), settings_(settings) {}

  Result<Graphs> run() {
    if (file_.root.name != "graphs")
      return fail(Code::InvalidUsage, "{}: the root is <{}>; expected <graphs version=\"1\">", placeOf(file_, file_.root), file_.root.name);
    const auto version = needInteger(file_, file_.root, "version", 1, 1);
    if (!version) return tl::unexpected(version.error());
    for (const Element& element : file_.root.children) {
      if (element.name != "graph") return tl::unexpected(unexpectedChild(element, "<graph>"));
      if (Status status = readGraph(element); !status.ok()) return tl::unexpected(std::move(status));
    }
    return std::move(graphs_);
  }

 private:
  Status unexpectedChild(const Element& element, std::string_view expected) const {
    return error(Code::InvalidUsage, "{}: expected {}", placeOf(file_, element), expected);
  }

  Status readGraph(const Element& element) {
    const auto id = needInteger(file_, element, "id", 0, kGraphKinds - 1);
    if (!id) return id.error();
    const auto kind = static_cast<GraphKind>(*id);
    const auto pattern = needInteger(file_, element, "pattern", 1, 6);
    if (!pattern) return pattern.error();
    if (!mayHave(kind, static_cast<Pattern>(*pattern))) {
      return badAttribute(file_, element, "pattern", element.find("pattern"),
                          format("what graph {} can have, such as {}", *id, static_cast<int>(usualPattern(kind))));
    }
    const auto crossNic = needInteger(file_, element, "crossnic", 0, 2);
    if (!crossNic) return crossNic.error();
    const auto channels = needInteger(file_, element, "nchannels", 0, kMostChannels);
    if (!channels) return channels.error();
    if (*channels != static_cast<int64_t>(element.children.size())) {
      return badAttribute(file_, element, "nchannels", element.find("nchannels"),
                          format("{}, for there are as many <channel>", element.children.size()));
    }
    const auto same = needInteger(file_, element, "samechannels", 0, 1);
    if (!same) return same.error();
    if (graphs_.computed[*id]) return error(Code::InvalidUsage, "{}: id {} is given twice", placeOf(file_, element), *id);
    ChannelSet set;
    set.pattern = static_cast<Pattern>(*pattern);
    set.crossNic = static_cast<CrossNic>(*crossNic);
    set.sameChannels = *same == 1;
    TUTTI_TRY(readSpeeds(element, set));
    for (const Element& child : element.children) TUTTI_TRY(readChannel(child, kind, set));
    if (*channels == 0 || (settings_.crossNic == 0 && set.crossNic == CrossNic::Always)) return {};
    graphs_[kind] = std::move(set);
    graphs_.computed[*id] = true;
    return {};
  }

  Status readSpeeds(const Element& element, ChannelSet& set) const {
    struct Number {
      const char* name;
      float* target;
      bool needed;
    };
    for (const Number& number : {Number{"speedintra", &set.intraGBps, true}, Number{"speedinter", &set.interGBps, true},
                                 Number{"latencyinter", &set.latencyInterUs, false}}) {
      const auto value = findNumber(file_, element, number.name, 0, kMostGBps);
      if (!value) return value.error();
      const std::optional<double>& given = *value;
      if (!given.has_value() && number.needed) return badAttribute(file_, element, number.name, nullptr, "a speed in GB/s");
      if (given.has_value()) *number.target = static_cast<float>(*given);
    }
    const bool runs = set.intraGBps > 0 && set.interGBps > 0;
    if (!runs && !element.children.empty())
      return badAttribute(file_, element, "speedintra", element.find("speedintra"), "speeds above 0 where there are channels");
    for (const auto& [name, target] : {std::pair{"typeintra", &set.typeIntra}, std::pair{"typeinter", &set.typeInter}}) {
      const std::string* text = element.find(name);
      const auto type = text == nullptr ? std::nullopt : pathTypeFromName(*text);
      if (!type || *type >= PathType::Net)
        return badAttribute(file_, element, name, text, "a path type: LOC, NVL, NVB, C2C, PIX, PXB, P2C, PXN, PHB or SYS");
      *target = *type;
    }
    return {};
  }

  Status readChannel(const Element& element, GraphKind kind, ChannelSet& set) const {
    if (element.name != "channel") return unexpectedChild(element, "<channel>");
    Channel channel;
    std::vector<NodeId> nets;
    for (const Element& stop : element.children) {
      if (stop.name != "gpu" && stop.name != "net") return unexpectedChild(stop, "<gpu> or <net>");
      const auto node = stop.name == "gpu" ? findDev(stop, NodeKind::Gpu) : findDev(stop, NodeKind::Net);
      if (!node) return node.error();
      if (stop.name == "net") {
        nets.push_back(*node);
      } else if (std::find(channel.gpus.begin(), channel.gpus.end(), *node) != channel.gpus.end()) {
        return error(Code::InvalidUsage, "{}: the GPU stands twice in its channel", placeOf(file_, stop));
      } else {
        channel.gpus.push_back(*node);
      }
    }
    const size_t gpus = kind == GraphKind::Nvls ? 1 : static_cast<size_t>(system_.count(NodeKind::Gpu));
    if (channel.gpus.size() != gpus)
      return error(Code::InvalidUsage, "{}: {} <gpu>; expected {}", placeOf(file_, element), channel.gpus.size(), gpus);
    const size_t wanted = system_.inter ? 2 : 0;
    if (nets.size() != wanted) {
      return error(Code::InvalidUsage, "{}: {} <net>; expected {}, as the communicator {}", placeOf(file_, element), nets.size(), wanted,
                   system_.inter ? "leaves this host" : "stays inside");
    }
    if (system_.inter) {
      channel.netIn = nets[0];
      channel.netOut = nets[1];
    }
    set.channels.push_back(std::move(channel));
    return {};
  }

  Result<NodeId> findDev(const Element& element, NodeKind kind) const {
    const auto dev = findHex(file_, element, "dev");
    if (!dev) return tl::unexpected(dev.error());
    const std::optional<uint64_t>& given = *dev;
    std::string known;
    for (const NodeId node : system_.all(kind)) {
      if (given.has_value() && devId(system_, node) == *given) return node;
      if (known.size() < 100) known += format("{}{:x}", known.empty() ? "" : " ", devId(system_, node));
    }
    return tl::unexpected(badAttribute(file_, element, "dev", element.find("dev"),
                                       format("one of the system's in hexadecimal: {}", known.empty() ? "there is none" : known)));
  }

  const Document& file_;
  const System& system_;
  const SearchSettings& settings_;
  Graphs graphs_;
};

Element devElement(const System& system, std::string_view name, NodeId node) {
  Element element{.name = std::string(name), .line = 0, .attributes = {}, .children = {}};
  const uint64_t dev = devId(system, node);
  element.set("dev", dev == 0 ? "0" : format("0x{:x}", dev));
  return element;
}

Element graphElement(GraphKind kind, const ChannelSet& set, bool computed, const System& system) {
  Element graph{.name = "graph", .line = 0, .attributes = {}, .children = {}};
  const bool some = computed && set.count() > 0;
  graph.set("id", format("{}", static_cast<int>(kind)));
  graph.set("pattern", format("{}", static_cast<int>(some ? set.pattern : usualPattern(kind))));
  graph.set("crossnic", format("{}", some ? static_cast<int>(set.crossNic) : 0));
  graph.set("nchannels", format("{}", some ? set.count() : 0));
  graph.set("speedintra", format("{}", some ? set.intraGBps : 0.0F));
  graph.set("speedinter", format("{}", some ? set.interGBps : 0.0F));
  graph.set("latencyinter", format("{}", some ? set.latencyInterUs : 0.0F));
  graph.set("typeintra", std::string(pathTypeName(some ? set.typeIntra : PathType::Loc)));
  graph.set("typeinter", std::string(pathTypeName(some ? set.typeInter : PathType::Loc)));
  graph.set("samechannels", some && set.sameChannels ? "1" : "0");
  if (!some) return graph;
  for (const Channel& channel : set.channels) {
    Element& made = graph.children.emplace_back(Element{.name = "channel", .line = 0, .attributes = {}, .children = {}});
    if (channel.netIn != kNoNode) made.children.push_back(devElement(system, "net", channel.netIn));
    for (const NodeId gpu : channel.gpus) made.children.push_back(devElement(system, "gpu", gpu));
    if (channel.netOut != kNoNode) made.children.push_back(devElement(system, "net", channel.netOut));
  }
  return graph;
}

}  // namespace

Result<Graphs> readGraphs(const Document& file, const System& system, const SearchSettings& settings) {
  return GraphReader(file, system, settings).run();
}

namespace {

/// Refuses sets that are none for this machine, and notes those that promise more than it has.
Status checkFits(const Document& file, const System& system, const Paths& paths, Graphs& given) {
  std::string ids;
  std::string where;
  for (int kind = 0; kind < kGraphKinds; ++kind) {
    if (!given.computed[kind]) continue;
    const ChannelSet& set = given.sets[kind];
    const SearchRequest request{.pattern = set.pattern, .maxChannels = kMostChannels};
    const Feasibility found = checkChannels(system, paths, request, set);
    const std::vector<std::string>& all = found.violations;
    if (all.size() > found.overloads) {
      return error(Code::InvalidUsage, "{}: graph {} ({} channels of {:g} GB/s inside, {:g} to nets) does not fit this machine: {}{}",
                   file.file, kind, set.count(), set.intraGBps, set.interGBps, all.front(),
                   all.size() > 1 ? format("; {} more", all.size() - 1) : "");
    }
    if (found.ok()) continue;
    ids += format("{}{}", ids.empty() ? "" : ", ", kind);
    if (where.empty())
      where = format("{}, with {} channels of {:g} GB/s", all.front(), set.count(), set.sumGBps() / static_cast<float>(set.count()));
  }
  if (!ids.empty())
    given.note = format("{}: graphs {} promise more than this machine has, and are used as they are: {}", file.file, ids, where);
  return {};
}

}  // namespace

Result<Graphs> findGraphs(const Document* file, const System& system, const Paths& paths, const GraphsRequest& request) {
  if (file == nullptr) return searchGraphs(system, paths, request);
  auto given = readGraphs(*file, system, request.settings);
  if (!given) return given;
  if (Status status = checkFits(*file, system, paths, *given); !status.ok()) return tl::unexpected(std::move(status));
  const auto has = [&](GraphKind kind) { return given->computed[static_cast<size_t>(kind)]; };
  if (has(GraphKind::Ring) && has(GraphKind::Tree) && (has(GraphKind::Nvls) || !request.nvls) &&
      (has(GraphKind::CollnetChain) || !request.collnet))
    return given;
  auto searched = searchGraphs(system, paths, request);
  if (!searched) return searched;
  searched->note = std::move(given->note);
  for (int kind = 0; kind < kGraphKinds; ++kind) {
    if (!given->computed[kind]) continue;
    searched->sets[kind] = std::move(given->sets[kind]);
    searched->computed[kind] = true;
  }
  return searched;
}

Element writeGraphs(const Graphs& graphs, const System& system) {
  Element root{.name = "graphs", .line = 0, .attributes = {}, .children = {}};
  root.set("version", "1");
  for (const GraphKind kind : {GraphKind::Ring, GraphKind::Tree, GraphKind::CollnetDirect, GraphKind::CollnetChain, GraphKind::Nvls}) {
    root.children.push_back(graphElement(kind, graphs[kind], graphs.computed[static_cast<size_t>(kind)], system));
  }
  return root;
}

}  // namespace tutti::topo
