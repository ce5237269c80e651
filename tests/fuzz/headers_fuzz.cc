// What the receiver of a remote pipe makes of the messages of a network: headers that say what follows, and pieces of payloads.
// The input is how the pipe is laid out, and then the messages, each as long as was asked for, or as its first byte says.
#include "fuzz/target.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <utility>

#include "fuzz/silent_network.h"
#include "progress/recv_job.h"

namespace tutti::fuzz {
namespace {

namespace net = transport::net;
using progress::Header;
using transport::local::Pipe;
using transport::local::RecvEnd;

/// What the network has handed over.
struct Delivered {
  std::deque<Header> headers;
  std::string payload;
};

class ScriptedComm final : public net::RecvComm {
 public:
  ScriptedComm(std::string_view script, Delivered& delivered, bool overtakes)
      : script_(script), delivered_(delivered), overtakes_(overtakes) {}
  bool overtakes() const override { return overtakes_; }
  Poll irecv(const net::InMessage& message, net::Request* request) override {
    size_t slot = 0;
    while (slot < sizes_.size() && sizes_[slot] != kFree) ++slot;
    promise(slot < sizes_.size(), "no more requests than a comm may have");
    request->token = &sizes_[slot];
    sizes_[slot] = kNever;
    if (script_.empty()) return Poll::Ready;
    const auto cut = static_cast<unsigned char>(script_.front());
    script_.remove_prefix(1);
    const size_t wanted = cut < 0xf0 ? message.capacity : std::min<size_t>(message.capacity, cut - 0xf0);
    const size_t bytes = std::min(wanted, script_.size());
    std::memcpy(message.data, script_.data(), bytes);
    script_.remove_prefix(bytes);
    sizes_[slot] = bytes;
    if (message.tag == progress::kHeaderTag) {
      promise(message.capacity == sizeof(Header), "a header has one size");
      Header header;
      std::memcpy(&header, message.data, sizeof header);
      if (bytes == sizeof header) delivered_.headers.push_back(header);
    } else {
      delivered_.payload.append(reinterpret_cast<const char*>(message.data), bytes);
    }
    return Poll::Ready;
  }
  net::Tested test(net::Request request, uint64_t* bytes) override {
    auto* size = static_cast<size_t*>(request.token);
    if (*size == kNever) return {};
    if (bytes != nullptr) *bytes = *size;
    *size = kFree;
    return {Poll::Ready, true};
  }
  Status status() const override { return error(Code::RemoteError, "broken"); }
  std::string peerText() const override { return "nowhere"; }

 private:
  static constexpr size_t kFree = ~size_t{0};
  static constexpr size_t kNever = ~size_t{0} - 1;
  std::string_view script_;
  Delivered& delivered_;
  const bool overtakes_;
  std::array<size_t, net::kMaxRequests> sizes_ = [] {
    std::array<size_t, net::kMaxRequests> all{};
    all.fill(kFree);
    return all;
  }();
};

/// A message that the reader sees is one that came, whole.
void checkMessage(RecvEnd& end, uint64_t mostBytes, uint64_t number, Delivered& delivered) {
  const auto& head = end.head();
  promise(!delivered.headers.empty(), "a message has a header");
  const Header header = delivered.headers.front();
  delivered.headers.pop_front();
  promise(header.magic == progress::kHeaderMagic && header.number == number, "messages come in their order");
  promise(head.bytes == header.bytes && head.bytes <= mostBytes, "no message is longer than it may be");
  promise(head.signature == header.signature, "its signature is the one that came");
  const auto* data = reinterpret_cast<const char*>(end.payload());
  if (header.pieceBytes == 0) {
    promise(header.bytes <= transport::local::kInlineBytes, "what lies in a header fits there");
    promise(std::memcmp(head.inlineData, header.payload, head.bytes) == 0, "what lies in a header comes as it was");
    return;
  }
  promise(delivered.payload.size() >= head.bytes, "all of a payload has come");
  promise(std::memcmp(data, delivered.payload.data(), head.bytes) == 0, "a payload comes as it was");
  delivered.payload.erase(0, head.bytes);
}

Header headerOf(uint64_t number, uint64_t bytes, uint32_t pieceBytes) {
  Header header;
  header.number = number;
  header.bytes = bytes;
  header.pieceBytes = pieceBytes;
  header.signature = 1000 + number;
  std::memset(header.payload, static_cast<int>(number), sizeof header.payload);
  return header;
}

}  // namespace

void run(std::string_view input) {
  if (input.size() < 2) return;
  const auto how = static_cast<unsigned char>(input[0]);
  const auto pace = static_cast<unsigned char>(input[1]);
  const uint32_t slots = 1 + how % 4;
  const uint64_t slotBytes = uint64_t{256} << (how / 4 % 4);
  const uint64_t mostBytes = slotBytes << (how / 16 % 4);
  auto pipe = Pipe::create(slots, slotBytes);
  promise(pipe.has_value(), "a pipe can be made");
  Delivered delivered;
  SilentNetwork network;
  ErrorLatch latch;
  std::atomic<uint64_t> heard{0};
  std::vector<transport::local::Offer> offers(slots);
  std::vector<std::byte> offered(mostBytes);
  transport::local::PipeView read = pipe->view();
  if (how >= 128) read.offers = offers.data();
  const transport::local::OfferView view = read.offering();
  progress::Poller poller;
  promise(poller.open().ok(), "there are descriptors");
  auto comm = std::make_unique<ScriptedComm>(input.substr(2), delivered, how % 128 >= 64);
  progress::RecvJob job(network, 0, std::make_unique<OneListener>(std::move(comm)), read, mostBytes, &heard, {Rank(3), "host"}, &latch);
  RecvEnd end(pipe->view());
  uint64_t number = 0;
  for (size_t quiet = 0; quiet < 3 && !job.final();) {
    if (how >= 128 && pace % 2 == 0) view.make(number + 1, offered.data(), mostBytes >> (pace / 2 % 4));
    quiet = job.advance(poller).moved ? 0 : quiet + 1;
    for (uint32_t i = 0; i <= pace % 3 && end.ready(); ++i) {
      checkMessage(end, mostBytes, ++number, delivered);
      end.release();
      quiet = 0;
    }
  }
  promise(latch.tripped() == (job.state() == progress::JobState::Failed), "whoever fails says why");
  if (latch.tripped()) promise(latch.status().text().find("rank 3 on host") != std::string::npos, "an error names the peer");
  job.stop(poller, progress::JobState::Closed);
}

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  for (const unsigned how : {0x00U, 0x15U, 0x3fU, 0x53U, 0x80U, 0xb6U, 0xf7U}) {
    for (const unsigned pace : {0U, 1U, 4U, 5U}) {
      std::string text = {static_cast<char>(how), static_cast<char>(pace)};
      const auto addMessage = [&text](const void* data, size_t bytes) {
        text += '\0';
        text.append(static_cast<const char*>(data), bytes);
      };
      uint64_t number = 0;
      for (const uint64_t bytes : {8ULL, 0ULL, 96ULL}) {
        const Header header = headerOf(++number, bytes, 0);
        addMessage(&header, sizeof header);
      }
      for (const uint64_t bytes : {97ULL, 256ULL, 500ULL}) {
        const Header header = headerOf(++number, bytes, 200);
        addMessage(&header, sizeof header);
        const std::string payload(bytes, static_cast<char>('a' + number));
        for (size_t at = 0; at < bytes; at += 200) addMessage(payload.data() + at, std::min<size_t>(200, bytes - at));
      }
      all.push_back(text);
    }
  }
  return all;
}

}  // namespace tutti::fuzz
