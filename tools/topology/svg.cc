#include "topology/svg.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/format.h"
#include "topo/affinity.h"
#include "topology/svg_layout.h"

namespace tutti::tool {
namespace {

using topo::Link;
using topo::LinkId;
using topo::LinkType;
using topo::NodeId;
using topo::NodeKind;
using topo::System;

constexpr double kTop = 112;    // for the heading and the links between CPUs
constexpr double kStrip = 84;   // of a ring or tree
constexpr double kMargin = 24;
constexpr double kStripName = 176;  // left of a strip's columns

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string_view fillOf(NodeKind kind) {
  switch (kind) {
    case NodeKind::Gpu: return "#d5efc7";
    case NodeKind::Pci: return "#e8e8e8";
    case NodeKind::NvSwitch: return "#a9d18e";
    case NodeKind::Cpu: return "#cfe2f7";
    case NodeKind::Nic: return "#fde3c8";
    case NodeKind::Net: return "#f9c58d";
    case NodeKind::Host: return "#d5efc7";
  }
  return "#ffffff";
}

std::string_view colourOf(LinkType type) {
  switch (type) {
    case LinkType::Nvl: return "#3b8a1d";
    case LinkType::C2c: return "#8a3bb0";
    case LinkType::Sys: return "#1f5fa8";
    case LinkType::Net: return "#c46a12";
    default: return "#666666";
  }
}

/// By channel strip, so that neighbours differ.
std::string_view colourOfStrip(size_t strip) {
  constexpr std::string_view kColours[] = {"#c0392b", "#2471a3", "#1e8449", "#9a5b0b", "#7d3c98", "#117a65", "#a93273", "#515a5a"};
  return kColours[strip % std::size(kColours)];
}

/// "port 1", or of a virtual net the ones that it is made of: "0 + 1".
std::string portsOf(const topo::NetInfo& net) {
  if (net.members.empty()) return format("port {}", net.port);
  std::string text;
  for (const int dev : net.members) text += format("{}{}", text.empty() ? "" : " + ", dev);
  return text;
}

struct Strip {
  std::string name;
  std::vector<NodeId> stops;  ///< Neighbours are hops.
  float GBps = 0;
  std::vector<int> channels;
};

class Drawing {
 public:
  Drawing(const topo::View& view, const topo::Graphs* graphs)
      : view_(view), system_(view.system), layout_(layOut(view.system, kTop)) {
    if (graphs != nullptr) {
      addStrips("ring", (*graphs)[topo::GraphKind::Ring], true);
      addStrips("tree", (*graphs)[topo::GraphKind::Tree], false);
    }
  }

  std::string draw() {
    for (const Place& at : layout_.places) taken_.push_back({at.x, at.y, Layout::kBoxWidth, Layout::kBoxHeight});
    drawLinks();
    for (size_t node = 0; node < system_.nodes.size(); ++node) drawBox(NodeId{static_cast<int32_t>(node)});
    for (size_t strip = 0; strip < strips_.size(); ++strip) drawStrip(strip);
    const double width = layout_.width + kStripName + 2 * kMargin;
    const double height = layout_.height + kStrip * static_cast<double>(strips_.size()) + 2 * kMargin;
    std::string out = format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
        "font-family=\"DejaVu Sans, Helvetica, sans-serif\" font-size=\"11\">\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        "<text x=\"{2:.0f}\" y=\"28\" font-size=\"16\" font-weight=\"bold\">{3}</text>\n"
        "<text x=\"{2:.0f}\" y=\"46\" fill=\"#555555\">links in GB/s a direction; best path {4:g} GB/s; {5} ranks</text>\n",
        width, height, kMargin, escaped(view_.xml.file.substr(view_.xml.file.rfind('/') + 1)), system_.maxGBps, system_.ranks);
    out += format("<g transform=\"translate({:.0f},0)\">\n", kMargin + kStripName);
    out += lines_ + boxes_ + labels_ + channels_ + "</g>\n</svg>\n";
    return out;
  }

 private:
  const Place& place(NodeId id) const { return layout_.places[static_cast<size_t>(id.value)]; }

  void addStrips(std::string_view name, const topo::ChannelSet& set, bool isRing) {
    const size_t begin = strips_.size();
    for (int channel = 0; channel < set.count(); ++channel) {
      const topo::Channel& one = set.channels[static_cast<size_t>(channel)];
      std::vector<NodeId> stops = one.gpus;
      if (one.netIn != topo::kNoNode) stops.insert(stops.begin(), one.netIn);
      if (one.netOut != topo::kNoNode && isRing) {
        stops.push_back(one.netOut);
      } else if (isRing && one.netIn == topo::kNoNode && stops.size() > 1) {
        stops.push_back(stops.front());
      }
      auto same = std::find_if(strips_.begin() + static_cast<ptrdiff_t>(begin), strips_.end(),
                               [&](const Strip& strip) { return strip.stops == stops; });
      if (same == strips_.end()) {
        strips_.push_back(
            {.name = std::string(name), .stops = std::move(stops), .GBps = std::min(set.intraGBps, set.interGBps), .channels = {}});
        same = strips_.end() - 1;
        if (one.netIn == topo::kNoNode) same->GBps = set.intraGBps;
      }
      same->channels.push_back(channel);
    }
  }

  void drawBox(NodeId id) {
    const topo::Node& node = system_.at(id);
    const Place& at = place(id);
    std::string second;
    switch (node.kind) {
      case NodeKind::Gpu: second = format("{} sm {}", topo::busIdText(node.id), node.gpu.sm); break;
      case NodeKind::Net: second = format("{}{}{}", portsOf(node.net), node.net.gdr ? " GDR" : "", node.net.coll ? " reduces" : ""); break;
      case NodeKind::Nic:
      case NodeKind::Pci: second = topo::busIdText(node.id); break;
      case NodeKind::Cpu: {
        const auto cpus = topo::cpusOf(node);
        second = cpus && !cpus->empty() ? format("{} CPUs", cpus->count()) : "";
        if (node.cpu.memoryMiB > 0)
          second += format("{}{:.3g} GiB", second.empty() ? "" : ", ", static_cast<double>(node.cpu.memoryMiB) / 1024);
        break;
      }
      case NodeKind::NvSwitch: second = "NVSwitch"; break;
      case NodeKind::Host: second = node.host.cpus.empty() ? "" : format("CPUs {}", node.host.cpus); break;
    }
    boxes_ += format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.0f}\" height=\"{:.0f}\" rx=\"4\" fill=\"{}\" stroke=\"#444444\"/>\n",
                     at.x - Layout::kBoxWidth / 2, at.y - Layout::kBoxHeight / 2, Layout::kBoxWidth, Layout::kBoxHeight, fillOf(node.kind));
    const double first = second.empty() ? at.y + 4 : at.y - 3;
    boxes_ += format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" font-weight=\"bold\">{}</text>\n", at.x, first,
                     topo::nodeName(system_, id));
    if (second.empty()) return;
    boxes_ += format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" font-size=\"9\">{}</text>\n", at.x, at.y + 11, second);
  }

  static std::string textOf(const Link& link, bool isForward) {
    return format("{} {:.4g}{}", linkTypeName(link.type), link.GBps, isForward ? "" : " ›");
  }
  static double widthOf(const std::string& text) { return 6.0 * static_cast<double>(text.size()) + 4; }

  /// The first of the places where a label of that size lies on nothing else; the first of all where there is none.
  Place freeOf(const std::vector<Place>& places, double width, double height) const {
    for (const Place& at : places) {
      const bool isFree = std::none_of(taken_.begin(), taken_.end(), [&](const Taken& other) {
        return std::abs(other.x - at.x) < (other.width + width) / 2 &&
               std::abs(other.y - (at.y - 10 + height / 2)) < (other.height + height) / 2;
      });
      if (isFree) return at;
    }
    return places.front();
  }

  void label(double x, double y, const Link& link, bool isForward) {
    const std::string text = textOf(link, isForward);
    const double width = widthOf(text);
    taken_.push_back({x, y - 3.5, width, 13});
    labels_ += format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"13\" fill=\"white\" fill-opacity=\"0.85\"/>\n",
                      x - width / 2, y - 10, width);
    labels_ += format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" font-size=\"10\" fill=\"{}\">{}</text>\n", x, y,
                      colourOf(link.type), text);
  }

  /// Once for both directions; a direction that is faster or slower gets a label of its own.
  void drawLinks() {
    for (size_t i = 0; i < system_.links.size(); ++i) {
      const Link& link = system_.links[i];
      const bool hasReverse = link.reverse != topo::kNoLink;
      if (link.from == link.to) continue;
      const bool isTree = layout_.isTreeLink[i];
      const bool isReverseTree = hasReverse && layout_.isTreeLink[static_cast<size_t>(link.reverse.value)];
      if (isReverseTree || (!isTree && hasReverse && link.reverse.value < static_cast<int32_t>(i))) continue;
      drawLink(link, isTree);
    }
  }

  void drawLink(const Link& link, bool isTree) {
    const Place& from = place(link.from);
    const Place& to = place(link.to);
    const double half = Layout::kBoxHeight / 2;
    const bool isSameRow = std::abs(from.y - to.y) < 1;
    double labelX = (from.x + to.x) / 2;
    double labelY = (from.y + to.y) / 2 + 4;
    std::string shape;
    std::function<Place(double)> along;  // from 0 to 1
    if (isSameRow) {
      // Above the CPUs, below the GPUs; the farther, the deeper.
      const double side = link.type == LinkType::Sys ? -1 : 1;
      const double bend = std::min(Layout::kRow * 1.2, 22 + std::abs(to.x - from.x) / 14) * side;
      const double y = from.y + half * side;
      shape = format("M{:.1f},{:.1f} Q{:.1f},{:.1f} {:.1f},{:.1f}", from.x, y, labelX, y + 2 * bend, to.x, y);
      labelY = y + bend + 4;
      along = [&, y, bend](double t) { return Place{from.x + (to.x - from.x) * t, y + 4 * bend * t * (1 - t) + 4}; };
    } else {
      const double side = from.y < to.y ? 1 : -1;
      const bool isFan = system_.at(link.from).kind == NodeKind::NvSwitch || system_.at(link.to).kind == NodeKind::NvSwitch;
      // Beside the PCI link of the same two, if there is one: C2C, and the NVLinks of a POWER CPU.
      const bool isBeside = link.type == LinkType::C2c || (link.type == LinkType::Nvl && !isFan);
      const double near = isBeside ? 20 : 0;
      shape = format("M{:.1f},{:.1f} L{:.1f},{:.1f}", from.x + near, from.y + half * side, to.x + near, to.y - half * side);
      along = [&, near](double t) { return Place{from.x + near + (to.x - from.x) * t, from.y + (to.y - from.y) * t + 4}; };
      if (isTree || isFan || near > 0) {
        // Where lines part, their labels would lie on one another: they stand at the end that is one's own.
        const bool isAtFrom = system_.at(link.to).kind == NodeKind::NvSwitch || system_.at(link.to).kind == NodeKind::Cpu;
        const Place& own = isAtFrom ? from : to;
        const Place& other = isAtFrom ? to : from;
        const double outward = own.y < other.y ? 1 : -1;
        const double distance = isFan ? 11 + 14 * static_cast<double>(fanOf(link, isAtFrom ? link.from : link.to)) : (near > 0 ? 9 : 26);
        const double share = std::min(1.0, distance / (std::abs(other.y - own.y) - 2 * half));
        labelX = own.x + near + (other.x - own.x) * share;
        labelY = own.y + outward * (half + distance) + 4;
      }
    }
    lines_ +=
        format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{:.1f}\"{}/>\n", shape, colourOf(link.type),
               1 + std::min(3.0, static_cast<double>(link.GBps) / 100), link.type == LinkType::C2c ? " stroke-dasharray=\"6 3\"" : "");
    const Link* back = link.reverse == topo::kNoLink ? nullptr : &system_.at(link.reverse);
    const bool isAlike = back != nullptr && back->GBps == link.GBps;
    const bool hasTwo = back != nullptr && !isAlike;
    std::vector<Place> places = {{labelX, labelY}};
    for (const double t : {0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74, 0.2, 0.8}) places.push_back(along(t));
    const Place at = freeOf(places, widthOf(textOf(link, isAlike)), hasTwo ? 26 : 13);
    label(at.x, at.y, link, isAlike);
    if (hasTwo) label(at.x, at.y + 13, *back, false);
  }

  /// Which of a node's links to NVSwitches it is.
  int fanOf(const Link& link, NodeId own) const {
    int before = 0;
    for (const LinkId id : system_.at(own).links) {
      const Link& other = system_.at(id);
      if (other.to == link.to || other.to == link.from) break;
      if (other.type == LinkType::Nvl) ++before;
    }
    return before;
  }

  void drawStrip(size_t index) {
    const Strip& strip = strips_[index];
    const std::string_view colour = colourOfStrip(index);
    const double line = layout_.height + kMargin + kStrip * (static_cast<double>(index) + 0.5);
    channels_ += format("<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"{}\" font-weight=\"bold\">{}</text>\n", -kStripName, line, colour,
                        namesOf(strip));
    channels_ += format("<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"#555555\" font-size=\"10\">{:.4g} GB/s each</text>\n", -kStripName,
                        line + 14, strip.GBps);
    for (size_t hop = 0; hop + 1 < strip.stops.size(); ++hop)
      drawHop(place(strip.stops[hop]).x, place(strip.stops[hop + 1]).x, line, colour);
    std::vector<NodeId> seen;
    for (size_t stop = 0; stop < strip.stops.size(); ++stop) {
      const NodeId id = strip.stops[stop];
      if (std::find(seen.begin(), seen.end(), id) != seen.end()) continue;
      seen.push_back(id);
      const std::string name = topo::nodeName(system_, id);
      const double width = std::max(26.0, 6 * static_cast<double>(name.size()) + 4);
      channels_ += format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"26\" rx=\"13\" fill=\"{}\" stroke=\"{}\" stroke-width=\"2\"/>\n",
          place(id).x - width / 2, line - 13, width, fillOf(system_.at(id).kind), colour);
      channels_ +=
          format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" font-size=\"8\">{}</text>\n", place(id).x, line + 3, name);
    }
  }

  /// To the right above the line, to the left below it, with an arrow in the middle.
  void drawHop(double from, double to, double line, std::string_view colour) {
    const double side = from < to ? -1 : 1;
    const double bend = side * std::min(kStrip / 2 - 6, 14 + std::abs(to - from) / 40);
    const double start = from - side * 9;
    const double end = to + side * 9;
    const double y = line + side * 9;
    channels_ += format("<path d=\"M{:.1f},{:.1f} Q{:.1f},{:.1f} {:.1f},{:.1f}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"/>\n",
                        start, y, (start + end) / 2, y + 2 * (bend - side * 9), end, y, colour);
    const double tip = (start + end) / 2 - side * 5;
    const double middle = line + bend;
    channels_ += format("<path d=\"M{:.1f},{:.1f} l{:.1f},-4 l0,8 z\" fill=\"{}\"/>\n", tip, middle, side * 9, colour);
  }

  /// "ring 0, 1, 2": all channels that are the same.
  static std::string namesOf(const Strip& strip) {
    constexpr size_t kMost = 6;
    std::string text = strip.name;
    for (size_t i = 0; i < std::min(strip.channels.size(), kMost); ++i) text += format("{}{}", i == 0 ? " " : ", ", strip.channels[i]);
    if (strip.channels.size() > kMost) text += format(" + {}", strip.channels.size() - kMost);
    return text;
  }

  struct Taken {
    double x, y, width, height;  // its centre
  };

  const topo::View& view_;
  const System& system_;
  const Layout layout_;
  std::vector<Taken> taken_;  // by boxes and labels
  std::vector<Strip> strips_;
  std::string lines_, boxes_, labels_, channels_;  // from below to above
};

}  // namespace

std::string drawTopology(const topo::View& view, const topo::Graphs* graphs) { return Drawing(view, graphs).draw(); }

}  // namespace tutti::tool
