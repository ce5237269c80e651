// What is compared: collectives and messages of a library between the processes of a job, on float, sums where they reduce.
//
// A process's one thread. A call returns when this rank's part is complete. An error ends the process, and with it the job.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "bench/operation.h"

namespace tutti::bench {

class Library {
 public:
  Library() = default;
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  virtual ~Library() = default;

  virtual std::string name() const = 0;
  virtual bool offers(Op) const { return true; }

  virtual void barrier() = 0;
  virtual void allReduce(const float* in, float* out, size_t count) = 0;
  /// `part`: elements of one rank.
  virtual void allGather(const float* in, float* out, size_t part) = 0;
  virtual void reduceScatter(const float* in, float* out, size_t part) = 0;
  virtual void allToAll(const float* in, float* out, size_t part) = 0;
  /// In place, the only form that all libraries have.
  virtual void broadcast(float* data, size_t count, int root) = 0;
  /// Sends to one rank and receives as much from another, both at once.
  virtual void sendReceive(const float* in, int to, float* out, int from, size_t count) = 0;
};

/// Says what is wrong and ends the process.
[[noreturn]] void stop(std::string_view what);

class Tutti;

/// The peer that this program was built with, connected. `tutti` helps it to find the other ranks.
std::unique_ptr<Library> connectPeer(Tutti& tutti);

}  // namespace tutti::bench
