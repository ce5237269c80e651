// One thread, many devices: all communicators of a process at once, and every operation of theirs in a group.
//
// A call on one communicator waits for its peers, which the same thread has to call for: without the group the first call would never
// return. On a machine without a GPU devices are host devices, which are names, and buffers are ordinary memory.
#include <vector>

#include "check.h"

namespace {

constexpr int kDevices = 4;
constexpr size_t kCount = 1000;

using Buffers = std::vector<std::vector<float>>;  // one for each device

/// Every element becomes the sum over the devices.
void sumEverywhere(const std::vector<ncclComm_t>& comms) {
  Buffers data;
  for (int device = 0; device < kDevices; ++device) data.emplace_back(kCount, static_cast<float>(device + 1));
  CHECK(ncclGroupStart());
  for (size_t i = 0; i < comms.size(); ++i) {
    CHECK(ncclAllReduce(data[i].data(), data[i].data(), kCount, ncclFloat, ncclSum, comms[i], nullptr));
  }
  CHECK(ncclGroupEnd());  // with the NULL stream the work is done when this returns
  for (const auto& buffer : data) {
    for (const float value : buffer) expect(value == 1 + 2 + 3 + 4, "the sum over four devices");
  }
}

/// A ring: each device sends to the next one and receives from the one before. Sends and receives wait for each other, so all are in
/// one group.
void passAround(const std::vector<ncclComm_t>& comms) {
  std::vector<int> sent(kDevices);
  std::vector<int> received(kDevices, -1);
  CHECK(ncclGroupStart());
  for (int device = 0; device < kDevices; ++device) {
    const auto i = static_cast<size_t>(device);
    sent[i] = 10 * device;
    CHECK(ncclSend(&sent[i], 1, ncclInt, (device + 1) % kDevices, comms[i], nullptr));
    CHECK(ncclRecv(&received[i], 1, ncclInt, (device + kDevices - 1) % kDevices, comms[i], nullptr));
  }
  CHECK(ncclGroupEnd());
  for (int device = 0; device < kDevices; ++device) {
    expect(received[static_cast<size_t>(device)] == 10 * ((device + kDevices - 1) % kDevices), "what the device before has sent");
  }
}

}  // namespace

int main() {
  std::vector<ncclComm_t> comms(kDevices);
  CHECK(ncclCommInitAll(comms.data(), kDevices, nullptr));  // devices 0 to 3
  sumEverywhere(comms);
  passAround(comms);
  // Ends of communicators wait for each other, too.
  CHECK(ncclGroupStart());
  for (const ncclComm_t comm : comms) CHECK(ncclCommDestroy(comm));
  CHECK(ncclGroupEnd());
  std::printf("one_thread: %d devices, all results right\n", kDevices);
  return 0;
}
