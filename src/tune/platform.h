// The constants of a platform as data: what the models reckon with, as files have it and as the library carries it.
//
// Plain values and pure functions; any thread. The built-in platforms are parsed once and stay.
// 1. A file is one JSON object: "name", "source" (where the numbers are from), and what it knows of: "host" (Machine), "devices"
//    (DeviceMachine), "links" (LinkConstants). What is there is there whole: a missing number, one that is none, and an unknown key are
//    InvalidUsage, with the file and the place in it. Optional: "key", the machine that it was measured on.
// 2. Which files there are is said by CMakeLists.txt: platforms/*.json become part of the library.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "core/status.h"
#include "exec/cuda/launch.h"
#include "tune/link_constants.h"

namespace tutti::tune {

/// Ranks that are threads or processes of a machine. No constant has a number here: hostMachine() is the built-in one.
struct Machine {
  double hopNs = 0;      ///< from a store until another core has seen it and gone on
  double switchNs = 0;   ///< until a rank that shares its core with others gets its turn, for each of them
  double messageNs = 0;  ///< to send or to receive
  double pipeNs = 0;     ///< more for a small one of a pipe, whose slot is given back; with larger ones that goes on beside the copies
  double bytesPerNs = 0;     ///< of memory traffic, by one core
  double farHopNs = 0;       ///< from a send until a rank on another host has seen it
  double farBytesPerNs = 0;  ///< between two hosts
  // Of the communicator, not of the platform:
  int32_t cores = 1;
  bool spansHosts = false;  ///< nodes are connected by a network
};

/// What a call costs on a kernel. GB/s are thousands of bytes a us.
struct KernelCost {
  double startUs = 0;       ///< from the launch until the first step, and from the last one until the end
  double messageUs = 0;     ///< windows: to store for a peer, or to see what one has stored
  double hopUs = 0;         ///< from the step of a rank until that of another which waits for it
  double roundUs = 0;       ///< windows: of every round of the second and later slices, which ranks go through in lockstep
  double jobUs = 0;         ///< pipes: of every piece of every step, in the block that carries it out
  double blockGBs = 0;      ///< memory traffic of one block, read and written
  double linkGBs = 0;       ///< payload from one device to others, and through its memory
  uint64_t leastBytes = 1;  ///< of a channel's part of a chunk: with fewer, another channel is of no use
  double flowHopUs = 0;     ///< pipes: of the hops behind the first of what is passed on from rank to rank; may be missing: then hopUs
  uint64_t flowBytes = 0;   ///< pipes: so much of a piece is passed on at a time; 0: all of it
};

/// A call that copy engines carry out.
struct CopyCost {
  double startUs = 14.5; ///< the kernels before and behind the copies, and how long an engine takes to begin and to be done
  double streamUs = 11;  ///< the same without kernels, where streams carry out the stages (transport/device/stages.h)
  double copyUs = 3;     ///< of every copy
  double turnUs = 5;     ///< of every copy that follows another one, on top of that
  double linkGBs = 390;  ///< from one device to another
  double manyGBs = 240;  ///< from each of several devices to all others at once
};

/// A call that moves little between windows, by one block.
struct MovedCost {
  double startUs = 6.8;   ///< until all have come to the call, and behind the last byte
  double blockGBs = 44;   ///< that the block stores, here or there; measured between two ranks alone
};

/// A call that moves more of it, by several blocks.
struct MovedTogetherCost {
  double startUs = 7.2;   ///< until all have come to the call, and behind the last block
  double blockGBs = 25;   ///< that a block stores to peers
  double linkGBs = 365;   ///< that a device does
};

/// A call whose blocks combine what lies in windows of all ranks.
struct MappedCost {
  double startUs = 9.4;   ///< until all have come to the call, and behind the last block
  double blockGBs = 40;   ///< that a block loads from peers and stores to them, of an all-reduce
  double loadGBs = 29;    ///< that it loads, of a reduce-scatter, which stores nothing there
  double linkGBs = 330;   ///< that a device does
  double manyGBs = 315;   ///< the same with several peers; may be missing in a file: then linkGBs
};

/// An all-reduce whose contributions and results engines carry, and whose blocks combine meanwhile.
struct CarriedCost {
  double startUs = 17;    ///< until all have come to the call, and behind the last copy
  double copyUs = 4.7;    ///< of every copy, on top of its bytes
  double meetUs = 10;     ///< of every meeting, beside copies
  double linkGBs = 390;   ///< from a device to the next
  double blockGBs = 109;  ///< of memory that a block reads and writes
};

/// Of a file that has no price of blocks.
inline constexpr double kBlockPrice = 0.003;

/// GPUs of one host. deviceMachine() is the built-in one.
struct DeviceMachine {
  double launchUs = 0;  ///< a call that is launched by itself, on top of what it takes in a graph
  double blockUs = 0;   ///< a block more on the device, of any kernel: launching it, and what it takes from the caller's own kernels
  double blockPrice = 0;  ///< so much longer, as a part of its time, may a call take for every block that it needs less (weighed())
  // These ten, and the price, may be missing in a file: then they are 0, 1 or kBlockPrice.
  double lateUs = 0;        ///< a lone call of more blocks than may be launched early (exec/cuda/work.h) takes so much more
  double roundsUs = 0;      ///< so does one of several rounds, which is no brief call (exec/cuda/brief.h)
  double roundsBlocks = 1;  ///< and its blocks need so many times as long for their bytes
  double forwardUs = 0;      ///< so does one that is, and forwards what it combines; it gains nothing from an early launch either
  double pairsGainUs = 0;    ///< of two ranks so much less: their blocks combine half of what they do in one round
  double forwardBlocks = 1;  ///< and its blocks, of more than two ranks
  double pairsBlocks = 1;    ///< of two
  /// So does one over pipes of plain data whose lanes send and receive by turns: until the first pieces are there, and behind the last.
  double turnsUs = 0;
  /// Pipes of plain data that lead to several peers by turns (pat) keep this part of the links busy.
  double byTurnsLinks = 1;
  /// And the blocks of gather, scatter and all-to-all, of which each only sends or only receives, are so many times as fast.
  double oneWay = 1;
  std::array<KernelCost, exec::cuda::kNumKernels> kernels;  ///< by KernelId
  CopyCost copies;    ///< may be missing in a file: then what stands here
  MovedCost moved;    ///< the same
  MovedTogetherCost movedTogether;  ///< the same
  MappedCost mapped;  ///< the same
  CarriedCost carried;  ///< the same, with the links of copies
  KernelCost lone;  ///< what the Window kernel would do, on a kernel of lone calls (exec/cuda/lone.h)
  KernelCost messages;  ///< what the Cells kernel would do, on that of lone messages; may be missing in a file: then as the Cells kernel
  KernelCost lineMessages;  ///< the same of the Lines kernel
};

struct Platform {
  std::string name;
  std::string source;
  std::string key;  ///< tune/store.h
  std::optional<Machine> host;
  std::optional<DeviceMachine> devices;
  std::optional<LinkConstants> links;
};

/// `where` names the text in errors.
Result<Platform> parsePlatform(std::string_view where, std::string_view text);
/// The same as text: what is parsed again is equal, to the bit.
std::string toText(const Platform& platform);

/// The built-in platform of that name; null when there is none.
const Platform* findPlatform(std::string_view name);
const Machine& hostMachine();
const DeviceMachine& deviceMachine();
const LinkConstants& linkConstants();

}  // namespace tutti::tune
