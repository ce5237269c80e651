// bench_net: the engine, and the library above it, against bare sockets. Two processes over loopback, everything in turns, medians.
//
// 8 B: ping-pong, half a round trip. 64 MB: one way, until the receiver's word that it has all of it. Every transfer is verified
// outside the time. The last column is the bare time over this one, within the same round (1.0 is as good; below 1 is slower): 8 B against
// bare sockets that never sleep, the harder yardstick, 64 MB against as many bare streams as the engine has. With "sizes" instead:
// those and sizes between (sizes.h).
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "bare.h"
#include "bench/json.h"
#include "bench/output.h"
#include "bench/plot.h"
#include "core/thread.h"
#include "library.h"
#include "progress/group.h"
#include "sizes.h"
#include "transport/socket/network.h"

namespace tutti::bench {
namespace {

using progress::Engine;
using transport::local::Pipe;
using transport::local::RecvEnd;
using transport::local::SendEnd;
using transport::local::SlotHead;

constexpr size_t kLarge = 64 << 20;
constexpr size_t kSmall = 8;
constexpr int kPings = 2000;
constexpr uint32_t kSlots = 4;
constexpr uint64_t kSlice = 1 << 20;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

[[noreturn]] void die(const std::string& what) {
  std::fprintf(stderr, "bench_net: %s\n", what.c_str());
  std::_Exit(1);
}

/// One of the two processes: bare sockets and an engine, each with both directions.
class Side {
 public:
  Side(bool first, int control, std::vector<int> bare, int threads)
      : first_(first), control_(control), bare_(std::move(bare)), buffer_(kLarge) {
    for (size_t i = 0; i < kLarge; ++i) buffer_[i] = first ? static_cast<std::byte>(i * 31 + (i >> 13)) : std::byte{0};
    transport::socket::Settings settings;
    if (threads > 0) settings.threads = threads;
    settings.cores = availableCores();
    auto address = transport::socket::Address::parse("127.0.0.1", 0);
    auto network = transport::socket::SocketNetwork::create({{.interface = "lo", .address = *address}}, settings);
    if (!network) die(network.error().text());
    auto engine = Engine::create(std::move(*network));
    if (!engine) die(engine.error().text());
    engine_ = std::move(*engine);
    group_ = std::make_unique<progress::JobGroup>(*engine_);
    out_ = std::make_unique<Pipe>(makePipe());
    in_ = std::make_unique<Pipe>(makePipe());
    transport::net::Handle mine;
    transport::net::Handle theirs;
    auto receiver =
        group_->addReceive({.pipe = readView(), .peer = {Rank(first ? 1 : 0), "loopback"}}, &mine);
    if (!receiver) die(receiver.error().text());
    auto* const sender = group_->addSend({.pipe = out_->view(), .peer = {Rank(first ? 1 : 0), "loopback"}});
    if (write(control_, &mine, sizeof mine) != sizeof mine || read(control_, &theirs, sizeof theirs) != sizeof theirs) die("control");
    sender->setHandle(theirs);
    while (!group_->settled()) (void)engine_->progressOrWait(std::chrono::milliseconds(1));
    if (!group_->status().ok()) die(group_->status().text());
    send_ = std::make_unique<SendEnd>(out_->view());
    recv_ = std::make_unique<RecvEnd>(readView());
    if (threads > 0) setenv("NCCL_SOCKET_NTHREADS", std::to_string(threads).c_str(), 1);
    library_ = std::make_unique<LibraryRank>(first, control_);
  }
  ~Side() { (void)group_->close(std::chrono::seconds(5)); }

  Ends ends() { return {first_, control_, bare_, *library_}; }
  /// Both sides begin together.
  void meet() { ends().meet(); }

  double barePing(bool spin) {
    std::byte word[kSmall] = {};
    const auto read = spin ? &spinRead : &readAll;
    const double begin = now();
    for (int i = 0; i < kPings; ++i) {
      if (first_) writeAll(bare_[0], word, kSmall);
      read(bare_[0], word, kSmall);
      if (!first_) writeAll(bare_[0], word, kSmall);
    }
    return (now() - begin) / kPings / 2;
  }

  double bareCopy(bool spin) {
    std::byte word[1] = {};
    const double begin = now();
    if (spin && first_) {
      spinWrite(bare_[0], buffer_.data(), kLarge);
      spinRead(bare_[0], word, 1);
    } else if (spin) {
      spinRead(bare_[0], buffer_.data(), kLarge);
      spinWrite(bare_[0], word, 1);
    } else if (first_) {
      writeStriped(bare_, buffer_.data(), kLarge);
      readAll(bare_[0], word, 1);
    } else {
      readStriped(bare_, buffer_.data(), kLarge);
      writeAll(bare_[0], word, 1);
    }
    return now() - begin;
  }

  double enginePing(bool sleep) {
    const double begin = now();
    for (int i = 0; i < kPings; ++i) {
      if (first_) pushSmall(static_cast<uint64_t>(i));
      take(sleep);
      if (!first_) pushSmall(static_cast<uint64_t>(i));
    }
    return (now() - begin) / kPings / 2;
  }

  /// In slices by reference; the receiver reads them where they are.
  double engineSlices(bool offered) {
    const double begin = now();
    if (first_) {
      for (size_t at = 0; at < kLarge; at += kSlice) pushReference(at, kSlice);
      take(true);
    } else {
      size_t ahead = 0;  // up to where places have been offered
      for (size_t at = 0; at < kLarge; at += kSlice) {
        std::byte* const wanted = offered ? buffer_.data() + at : nullptr;
        for (; offered && ahead < kLarge && ahead < at + kSlots * kSlice; ahead += kSlice)
          recv_->offer(recv_->received() + 1 + (ahead - at) / kSlice, buffer_.data() + ahead, kSlice);
        take(true, wanted);
      }
      pushSmall(0);
    }
    return now() - begin;
  }

  /// In one message, straight to where it is wanted.
  double engineWhole() {
    const double begin = now();
    if (first_) {
      pushReference(0, kLarge);
      take(true);
    } else {
      recv_->offer(recv_->received() + 1, buffer_.data(), kLarge);
      take(true, buffer_.data());
      pushSmall(0);
    }
    return now() - begin;
  }

  double libraryPing() {
    std::byte word[kSmall] = {};
    return library_->ping(word, word, kPings);
  }
  double libraryCopy() { return library_->copy(buffer_); }

  void clear() {
    if (!first_) std::memset(buffer_.data(), 0, kLarge);
  }
  void verify() const {
    if (first_) return;
    for (size_t i = 0; i < kLarge; ++i) {
      if (buffer_[i] != static_cast<std::byte>(i * 31 + (i >> 13))) die("wrong data");
    }
  }

 private:
  transport::local::PipeView readView() {
    transport::local::PipeView view = in_->view();
    view.offers = offers_.data();
    return view;
  }
  static Pipe makePipe() {
    auto pipe = Pipe::create(kSlots, kSlice);
    if (!pipe) die(pipe.error().text());
    return std::move(*pipe);
  }

  /// As a waiting rank does: drives for a while, then sleeps.
  template <class Done>
  void await(bool sleep, Done&& done) {
    constexpr int kSpins = 2000;
    for (int tries = 0; !done(); ++tries) {
      if (engine_->progress()) tries = 0;
      if (sleep && tries >= kSpins) (void)engine_->progressOrWait(std::chrono::milliseconds(10));
      if (tries % 1024 == 1023 && !group_->status().ok()) die(group_->status().text());
    }
  }
  void take(bool sleep, std::byte* wanted = nullptr) {
    await(sleep, [&] { return recv_->ready(); });
    const SlotHead& head = recv_->head();
    if (wanted != nullptr && recv_->payload() != wanted) std::memcpy(wanted, recv_->payload(), head.bytes);  // the offer came too late
    recv_->release();
  }
  void pushSmall(uint64_t value) {
    await(true, [&] { return send_->ready(kSmall); });
    SlotHead& head = send_->head();
    head.signature = value;
    head.bytes = kSmall;
    head.lent = 0;
    std::memcpy(head.inlineData, &value, kSmall);
    send_->push(false);
    (void)engine_->progress();
  }
  void pushReference(size_t at, size_t bytes) {
    await(true, [&] { return send_->ready(bytes); });
    SlotHead& head = send_->head();
    head.signature = at;
    head.bytes = bytes;
    head.lent = reinterpret_cast<uint64_t>(buffer_.data() + at);
    send_->push(true);
    (void)engine_->progress();
  }

  const bool first_;
  const int control_;
  const std::vector<int> bare_;
  std::vector<std::byte> buffer_;
  std::vector<transport::local::Offer> offers_ = std::vector<transport::local::Offer>(kSlots);
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<progress::JobGroup> group_;
  std::unique_ptr<Pipe> out_;
  std::unique_ptr<Pipe> in_;
  std::unique_ptr<SendEnd> send_;
  std::unique_ptr<RecvEnd> recv_;
  std::unique_ptr<LibraryRank> library_;
};

struct Case {
  const char* name;
  const char* unit;
  int yardstick;  ///< the case that it is compared with
  bool fillsBuffer;
  std::function<double(Side&)> run;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"8 B, bare, asleep in recv", "us", 0, false, [](Side& s) { return s.barePing(false); }},
      {"8 B, bare, spinning", "us", 1, false, [](Side& s) { return s.barePing(true); }},
      {"8 B, engine, driving", "us", 1, false, [](Side& s) { return s.enginePing(false); }},
      {"8 B, ncclSend and ncclRecv", "us", 1, false, [](Side& s) { return s.libraryPing(); }},
      {"64 MB, bare, asleep when it has to wait", "GB/s", 4, true, [](Side& s) { return s.bareCopy(false); }},
      {"64 MB, bare, one stream, spinning", "GB/s", 4, true, [](Side& s) { return s.bareCopy(true); }},
      {"64 MB, engine, 1 MiB slices through slots", "GB/s", 4, false, [](Side& s) { return s.engineSlices(false); }},
      {"64 MB, engine, 1 MiB slices, offered", "GB/s", 4, true, [](Side& s) { return s.engineSlices(true); }},
      {"64 MB, engine, one message, offered", "GB/s", 4, true, [](Side& s) { return s.engineWhole(); }},
      {"64 MB, ncclSend to ncclRecv", "GB/s", 4, true, [](Side& s) { return s.libraryCopy(); }},
  };
  return all;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void measure(Side& side, bool report, int rounds, const std::string& only) {
  const auto chosen = [&](size_t i) { return std::string(cases()[i].name).starts_with(only); };
  std::vector<std::vector<double>> times(cases().size());
  for (int round = -1; round < rounds; ++round) {  // one to warm up
    for (size_t i = 0; i < cases().size(); ++i) {
      if (!chosen(i)) continue;
      side.clear();
      side.meet();
      const double seconds = cases()[i].run(side);
      side.meet();
      if (cases()[i].fillsBuffer) side.verify();
      if (round >= 0) times[i].push_back(seconds);
    }
  }
  if (!report) return;
  for (size_t i = 0; i < cases().size(); ++i) {
    if (!chosen(i)) continue;
    const double middle = median(times[i]);
    const bool small = std::string(cases()[i].unit) == "us";
    std::vector<double> ratios;  // in the same round, so that a noisy moment meets both
    for (size_t k = 0; k < times[i].size(); ++k)
      ratios.push_back(chosen(static_cast<size_t>(cases()[i].yardstick)) ? times[static_cast<size_t>(cases()[i].yardstick)][k] / times[i][k]
                                                                         : 0);
    if (i == 0) std::printf("%-44s %14s %17s\n", "", "median", "ratio to bare");
    std::printf("%-44s %8.2f %-5s  %10.2f\n", cases()[i].name, small ? middle * 1e6 : kLarge / middle / 1e9, cases()[i].unit,
                median(ratios));
  }
}

struct NetOptions {
  int rounds = 15;
  int streams = 0;
  std::string only;
  std::string plotPath;
  std::string jsonPath;
};

NetOptions parseOptions(int argc, char** argv) {
  NetOptions options;
  CLI::App app("The engine that carries messages between hosts, and the library above it, beside bare sockets.");
  app.add_option("ROUNDS", options.rounds, "everything is measured so often, in turns")->capture_default_str()
      ->check(CLI::Range(1, 100000));
  app.add_option("STREAMS", options.streams, "NCCL_SOCKET_NTHREADS, and bare sockets; 0: the default, beside one")->capture_default_str()
      ->check(CLI::Range(0, 64));
  app.add_option("WHAT", options.only,
                 "8, 64, or a longer beginning of a line: only that; sizes: those and between, there and back");
  app.add_option("--plot", options.plotPath, "with sizes: draw times into FILE.svg")->type_name("FILE");
  app.add_option("--json", options.jsonPath, "with sizes: write all rows as a JSON list")->type_name("FILE");
  try {
    app.parse(argc, argv);
    if (options.only != "sizes" && !(options.plotPath.empty() && options.jsonPath.empty()))
      throw CLI::ValidationError("--plot, --json", "are of sizes");
    const auto begins = [&](const Case& one) { return std::string(one.name).starts_with(options.only); };
    if (options.only != "sizes" && std::ranges::none_of(cases(), begins))
      throw CLI::ValidationError("WHAT", "no line begins with " + options.only);
  } catch (const CLI::ParseError& problem) {
    std::exit(app.exit(problem) == 0 ? 0 : 2);
  }
  return options;
}

void writeFile(const std::string& path, const std::string& text) {
  Result<File> file = openOutput(path);
  if (!file) die(file.error().text());
  if (const Status status = writeOutput(std::move(*file), path, text); !status.ok()) die(status.text());
}

void measureAll(Side& side, bool reports, const NetOptions& options) {
  if (options.only != "sizes") return measure(side, reports, options.rounds, options.only);
  const std::vector<Row> rows = measureSizes(side.ends(), options.rounds);
  if (!reports) return;
  writeFile(options.plotPath, drawSvg(rows, "two processes over loopback"));
  writeFile(options.jsonPath, toJson(rows));
}

}  // namespace
}  // namespace tutti::bench

int main(int argc, char** argv) {
  using namespace tutti::bench;
  setenv("TUTTI_DEVICE", "host", 1);  // its buffers are memory of the host
  const NetOptions options = parseOptions(argc, argv);
  int control[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, control) != 0) return 1;
  BarePair bare = connectPairs(static_cast<size_t>(std::max(1, options.streams)));
  const pid_t child = fork();
  if (child < 0) return 1;
  close(control[child == 0 ? 0 : 1]);
  {
    Side side(child != 0, control[child == 0 ? 1 : 0], child != 0 ? bare.first : bare.second, options.streams);
    measureAll(side, child != 0, options);
    side.meet();
  }
  if (child == 0) std::_Exit(0);
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0 ? 0 : 1;
}
