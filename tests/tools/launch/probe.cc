// A program for launchers_test.py: takes part in the exchange as `tutti bench` does, with an id of its own making, and prints what it
// has got: "RANK RANKS LAUNCHER FIRST-BYTES-OF-THE-ID". `probe N` does it N times.
#include <cstdio>
#include <cstdlib>
#include <random>

#include "launch/exchange.h"

namespace {

tutti::Result<ncclUniqueId> makeRandomId() {
  std::random_device device;
  ncclUniqueId id;
  for (char& byte : id.internal) byte = static_cast<char>(device());
  return id;
}

int exchangeOnce(const tutti::launch::Environment& environment) {
  const auto standing = tutti::launch::findStanding(environment);
  if (!standing) {
    std::fprintf(stderr, "%s\n", standing.error().text().c_str());
    return 2;
  }
  const char* seconds = std::getenv("PROBE_SECONDS");
  const std::chrono::milliseconds timeout(1000 * (seconds ? std::atoi(seconds) : 30));
  const auto id = tutti::launch::exchangeId(*standing, environment, makeRandomId, timeout);
  if (!id) {
    std::fprintf(stderr, "%s\n", id.error().text().c_str());
    return 3;
  }
  std::string text;
  for (size_t i = 0; i < sizeof id->internal; i += 9) text += tutti::format("{:02x}", static_cast<unsigned char>(id->internal[i]));
  std::printf("%d %d %s %s\n", standing->rank, standing->ranks, std::string(name(standing->launcher)).c_str(), text.c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const auto environment = tutti::launch::readEnvironment();
  int code = 0;
  for (int times = argc > 1 ? std::atoi(argv[1]) : 1; times > 0 && code == 0; --times) code = exchangeOnce(environment);
  return code;
}
