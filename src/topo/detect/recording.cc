#include <algorithm>
#include <limits>

#include "topo/detect/machine.h"

namespace tutti::topo::detect {
namespace {

constexpr std::string_view kVersion = "1";
constexpr int64_t kAnyInt = std::numeric_limits<int>::max();

Element& add(Element& parent, std::string_view name) {
  Element& made = parent.children.emplace_back();
  made.name = name;
  return made;
}

void writeGpu(Element& root, const GpuFacts& gpu) {
  Element& element = add(root, "gpu");
  element.set("busid", gpu.busId);
  element.set("dev", format("{}", gpu.dev));
  element.set("sm", format("{}", gpu.sm));
  element.set("gdr", gpu.gdr ? "1" : "0");
  element.set("c2c", format("{}", gpu.c2cLinks));
  element.set("c2cmbps", format("{}", gpu.c2cMBps));
  for (const GpuFacts::Link& link : gpu.nvlinks) {
    Element& nvlink = add(element, "nvlink");
    nvlink.set("target", link.target);
    nvlink.set("count", format("{}", link.count));
    nvlink.set("tclass", link.pciClass);
  }
}

void writeNet(Element& root, const NetFacts& net) {
  Element& element = add(root, "net");
  element.set("name", net.name);
  element.set("path", net.pciPath);
  element.set("dev", format("{}", net.dev));
  element.set("speed", format("{}", net.speedMbps));
  element.set("port", format("{}", net.port));
  element.set("latency", format("{}", net.latencyUs));
  element.set("guid", format("{:#x}", net.guid));
  element.set("maxconn", format("{}", net.maxConnections));
  element.set("gdr", net.gdr ? "1" : "0");
}

/// Lines are elements, so that the file can be read and compared by people.
void writeAnswers(Element& root, std::string_view name, const Answers& answers) {
  for (const auto& [path, answer] : answers) {
    Element& element = add(root, name);
    element.set("path", path);
    if (!answer) continue;
    std::string_view rest = *answer;
    while (true) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      add(element, "line").set("text", std::string(line));
      if (line.size() == rest.size()) break;
      rest.remove_prefix(line.size() + 1);
    }
  }
}

class Reader {
 public:
  explicit Reader(const Document& document) : document_(document) {}

  Result<Recording> read() {
    if (Status status = readAll(); !status.ok()) return tl::unexpected(std::move(status));
    return Recording{.facts = std::move(facts_), .files = std::make_shared<RecordedFiles>(std::move(texts_), std::move(links_))};
  }

 private:
  Status readAll() {
    const Element& root = document_.root;
    if (root.name != "recording") {
      return error(Code::InvalidUsage, "{}: expected <recording version=\"{}\">, as --record writes it", placeOf(document_, root),
                   kVersion);
    }
    const std::string* version = root.find("version");
    if (version == nullptr || *version != kVersion) return badAttribute(document_, root, "version", version, kVersion);
    for (const Element& element : root.children) TUTTI_TRY(readOne(element));
    return {};
  }

  Status readOne(const Element& element) {
    if (element.name == "gpu") return readGpu(element);
    if (element.name == "net") return readNet(element);
    if (element.name == "file") return readAnswer(element, texts_);
    if (element.name == "link") return readAnswer(element, links_);
    if (element.name != "process") {
      return error(Code::InvalidUsage, "{}: expected <process>, <gpu>, <net>, <file> or <link>", placeOf(document_, element));
    }
    const std::string* list = element.find("cpus");
    const auto set = list == nullptr ? std::nullopt : CpuSet::fromList(*list);
    if (!set) return badAttribute(document_, element, "cpus", list, "a list of CPUs such as 0-3,8");
    facts_.allowed = *set;
    return {};
  }

  Status readGpu(const Element& element) {
    GpuFacts gpu;
    TUTTI_TRY(text(element, "busid", gpu.busId));
    TUTTI_TRY(number(element, "dev", 0, gpu.dev));
    TUTTI_TRY(number(element, "sm", 0, gpu.sm));
    TUTTI_TRY(flag(element, gpu.gdr));
    TUTTI_TRY(number(element, "c2c", 0, gpu.c2cLinks));
    TUTTI_TRY(number(element, "c2cmbps", 0, gpu.c2cMBps));
    for (const Element& child : element.children) {
      GpuFacts::Link& link = gpu.nvlinks.emplace_back();
      TUTTI_TRY(text(child, "target", link.target));
      TUTTI_TRY(number(child, "count", 1, link.count));
      TUTTI_TRY(text(child, "tclass", link.pciClass));
    }
    facts_.gpus.push_back(std::move(gpu));
    return {};
  }

  Status readNet(const Element& element) {
    NetFacts net;
    TUTTI_TRY(text(element, "name", net.name));
    TUTTI_TRY(text(element, "path", net.pciPath));
    TUTTI_TRY(number(element, "dev", 0, net.dev));
    TUTTI_TRY(number(element, "speed", -1, net.speedMbps));
    TUTTI_TRY(number(element, "port", -1, net.port));
    TUTTI_TRY(number(element, "maxconn", 0, net.maxConnections));
    TUTTI_TRY(flag(element, net.gdr));
    const auto latency = findNumber(document_, element, "latency", 0, 1e9);
    if (!latency) return latency.error();
    net.latencyUs = static_cast<float>(latency->value_or(0));
    const auto guid = findHex(document_, element, "guid");
    if (!guid) return guid.error();
    net.guid = guid->value_or(0);
    facts_.nets.push_back(std::move(net));
    return {};
  }

  Status readAnswer(const Element& element, Answers& answers) {
    std::string path;
    TUTTI_TRY(text(element, "path", path));
    std::optional<std::string> answer;
    for (const Element& child : element.children) {
      std::string line;
      TUTTI_TRY(text(child, "text", line));
      answer = answer ? *answer + "\n" + line : line;
    }
    if (answers.emplace(path, std::move(answer)).second) return {};
    return badAttribute(document_, element, "path", &path, "a path that is not there already");
  }

  Status text(const Element& element, std::string_view name, std::string& value) const {
    const std::string* found = element.find(name);
    if (found == nullptr) return badAttribute(document_, element, name, nullptr, "a text");
    value = *found;
    return {};
  }

  Status number(const Element& element, std::string_view name, int64_t least, int& value) const {
    const auto found = needInteger(document_, element, name, least, kAnyInt);
    if (!found) return found.error();
    value = static_cast<int>(*found);
    return {};
  }

  Status flag(const Element& element, bool& value) const {
    const auto found = needInteger(document_, element, "gdr", 0, 1);
    if (!found) return found.error();
    value = *found != 0;
    return {};
  }

  const Document& document_;
  MachineFacts facts_;
  Answers texts_;
  Answers links_;
};

}  // namespace

void hideGuids(MachineFacts& facts) {
  std::vector<uint64_t> seen;
  for (NetFacts& net : facts.nets) {
    const auto at = std::find(seen.begin(), seen.end(), net.guid);
    const auto place = static_cast<uint64_t>(at - seen.begin());
    if (at == seen.end()) seen.push_back(net.guid);
    net.guid = place + 1;
  }
}

Element writeRecording(const MachineFacts& facts, const RecordingFiles& files) {
  Element root;
  root.name = "recording";
  root.set("version", std::string(kVersion));
  add(root, "process").set("cpus", facts.allowed.list());
  for (const GpuFacts& gpu : facts.gpus) writeGpu(root, gpu);
  for (const NetFacts& net : facts.nets) writeNet(root, net);
  writeAnswers(root, "link", files.links());
  writeAnswers(root, "file", files.texts());
  return root;
}

Result<Recording> readRecording(const Document& document) { return Reader(document).read(); }

}  // namespace tutti::topo::detect
