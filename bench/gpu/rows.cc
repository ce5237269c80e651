#include "gpu/rows.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/output.h"
#include "bench/plot.h"

namespace tutti::bench::gpu {
namespace {

using Json = nlohmann::ordered_json;

double busGBps(const CallKind& kind, int ranks, double us) {
  return us <= 0 ? 0 : static_cast<double>(kind.bytes(ranks)) / us / 1000 * kind.operation->busFactor(ranks);
}

Json toJson(const Figures& figures, const CompareRow& row, int ranks, int multiprocessors) {
  Json side = {{"medianUs", figures.medianUs}, {"p99Us", figures.p99Us}, {"q1Us", figures.firstQuarterUs}, {"q3Us", figures.thirdQuarterUs},
               {"busGBps", busGBps(row.kind, ranks, figures.medianUs)}, {"cpuUs", nullptr}, {"wrong", figures.wrong},
               {"kernels", figures.nodes.kernels}, {"ctas", figures.nodes.ctas},
               // Blocks of one kernel are spread over free SMs before two share one.
               {"sms", std::min<uint64_t>(figures.nodes.ctas, static_cast<uint64_t>(multiprocessors))},
               {"threads", figures.nodes.threads}, {"copies", figures.nodes.copies}, {"others", figures.nodes.others}};
  if (row.mode == Mode::Eager) side["cpuUs"] = figures.cpuUs;
  return side;
}

}  // namespace

RowWriter::RowWriter(const BenchOptions& options, bool isLead) : options_(options) {
  if (!isLead || options.jsonPath.empty()) return;
  file_.reset(std::fopen(options.jsonPath.c_str(), options.appends ? "a" : "w"));
  if (!file_) stop("{} cannot be written", options.jsonPath);
}

void RowWriter::write(const std::string& line) {
  if (!file_) return;
  if (std::fprintf(file_.get(), "%s\n", line.c_str()) < 0 || std::fflush(file_.get()) != 0) stop("{} cannot be written", options_.jsonPath);
}

void RowWriter::header(const Device& device, const std::array<std::string, 2>& versions, const std::array<std::string, 2>& paths) {
  if (!file_ || options_.appends) return;
  Json header = {{"command", options_.command}, {"device", device.name()}, {"multiprocessors", device.multiprocessors()},
                 {"ranks", options_.ranks}, {"rounds", options_.rounds}, {"blockUs", options_.blockUs},
                 {"rotateBytes", options_.rotateBytes}, {"buffers", name(options_.buffers)}};
  const std::array<const LibraryOptions*, 2> libraries = {&options_.a, &options_.b};
  for (size_t i = 0; i < 2; ++i) {
    if (libraries[i]->path.empty()) continue;
    Json variables = Json::object();
    for (const auto& [variable, value] : libraries[i]->variables) variables[variable] = value;
    header[i == 0 ? "a" : "b"] = {{"name", libraries[i]->name}, {"path", paths[i]}, {"version", versions[i]}, {"env", variables}};
  }
  write(Json{{"header", header}}.dump());
}

void RowWriter::memory(int ctas, const std::array<Taken, 2>& taken) {
  if (!file_ || options_.appends) return;
  Json memory = {{"maxCtas", ctas}};
  for (size_t i = 0; i < 2; ++i) memory[i == 0 ? "a" : "b"] = {{"connectedBytes", taken[i].connected}, {"warmBytes", taken[i].warm}};
  write(Json{{"memory", memory}}.dump());
}

void RowWriter::row(const CompareRow& row, int multiprocessors) {
  if (!file_) return;
  Json object = {{"op", row.kind.operation->name}, {"type", tutti::name(row.kind.type)}, {"redop", nullptr},
                 {"ranks", options_.ranks}, {"root", nullptr}, {"count", row.kind.count}, {"bytes", row.kind.bytes(options_.ranks)},
                 {"mode", name(row.mode)}, {"inPlace", row.kind.isInPlace}, {"buffers", name(options_.buffers)}, {"maxCtas", row.ctas},
                 {"rounds", row.rounds}, {"calls", row.calls}, {"slots", row.slots}};
  if (row.kind.redOp) object["redop"] = tutti::bench::name(*row.kind.redOp);
  if (row.kind.operation->isRooted) object["root"] = row.kind.root;
  for (size_t i = 0; i < 2; ++i) object[i == 0 ? "a" : "b"] = toJson(row.figures[i], row, options_.ranks, multiprocessors);
  object["ratio"] = row.figures[0].medianUs > 0 ? row.figures[1].medianUs / row.figures[0].medianUs : 0;
  write(object.dump());
}

void RowWriter::object(const std::vector<std::pair<std::string, std::string>>& texts,
                       const std::vector<std::pair<std::string, double>>& numbers) {
  if (!file_) return;
  Json object = Json::object();
  for (const auto& [key, value] : texts) object[key] = value;
  for (const auto& [key, value] : numbers) object[key] = value;
  write(object.dump());
}

namespace {

struct Drawing {
  std::string device;
  std::array<std::string, 2> libraries = {"a", "b"};
  std::vector<std::pair<std::string, std::vector<Row>>> operations;  ///< in the order of the file

  void readHeader(const Json& header) {
    device = header.value("device", "");
    for (size_t i = 0; i < 2; ++i) libraries[i] = header.value(i == 0 ? "/a/name"_json_pointer : "/b/name"_json_pointer, libraries[i]);
  }

  void readRow(const Json& line) {
    const std::string op = line.value("op", "");
    auto found = std::find_if(operations.begin(), operations.end(), [&](const auto& entry) { return entry.first == op; });
    if (found == operations.end()) found = operations.insert(found, {op, {}});
    for (size_t i = 0; i < 2; ++i) {
      const Json& side = line[i == 0 ? "a" : "b"];
      Row row;
      row.op = op;
      row.type = line.value("type", "");
      row.redOp = line.contains("redop") && line["redop"].is_string() ? line.value("redop", "") : "none";
      row.ranks = line.value("ranks", 0);
      row.bytes = line.value("bytes", uint64_t{0});
      row.isInPlace = line.value("inPlace", false);
      row.timeUs = side.value("medianUs", 0.0);
      row.p99Us = side.value("p99Us", 0.0);
      row.busbwGBps = side.value("busGBps", 0.0);
      row.library = format("{}, {}", libraries[i], line.value("mode", ""));
      found->second.push_back(row);
    }
  }
};

}  // namespace

int plotRows(const std::string& from, const std::string& to) {
  std::ifstream in(from);
  if (!in) stop("{} cannot be read", from);
  Drawing drawing;
  for (std::string text; std::getline(in, text);) {
    const Json line = Json::parse(text, nullptr, false);
    if (!line.is_object()) stop("{}: not a line of JSON: {}", from, text.substr(0, 80));
    if (line.contains("header")) drawing.readHeader(line["header"]);
    if (line.contains("op") && line.contains("a") && line.contains("b")) drawing.readRow(line);
  }
  if (drawing.operations.empty()) stop("{} has no rows", from);
  for (const auto& [op, rows] : drawing.operations) {
    const std::string path = pathFor(to, op);
    Result<File> file = openOutput(path);
    if (!file) stop("{}", file.error().text());
    const Status status = writeOutput(std::move(*file), path, drawSvg(rows, drawing.device));
    if (!status.ok()) stop("{}", status.text());
  }
  return 0;
}

}  // namespace tutti::bench::gpu
