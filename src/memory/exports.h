// Memory of ncclMemAlloc that other processes of the host may map: a table that its owner writes and they read.
//
// Owner: the process (ExportTable, by its HostAllocator); each reader of another process (ImportTable). ExportTable: any thread, one lock.
// ImportTable: any thread, one lock, off the path of repeated look-ups.
// 1. An entry is changed under its version, which is odd meanwhile; a reader that saw a change looks again.
// 2. A region that cannot be listed (more than kMost) is simply not exported.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "core/status.h"
#include "memory/mapping.h"

namespace tutti::memory {

struct Export {
  std::atomic<uint64_t> version;  ///< odd while the rest changes (release); the reader's acquires pair with it
  std::atomic<uint64_t> base;     ///< 0: empty
  std::atomic<uint64_t> bytes;
  std::atomic<int64_t> fd;        ///< of the memfd, in its owner
  /// In bytes from the base: what the owner has other memory for since. Only grows, and not under the version: the rest stays mapped.
  std::atomic<uint64_t> takenFrom;
  std::atomic<uint64_t> takenTo;
};

struct ExportList {
  static constexpr size_t kMost = 4096;
  std::atomic<uint64_t> changes;  ///< counts what was added or removed (release); pairs with ImportTable::find
  std::atomic<uint64_t> used;     ///< entries from here on were never used
  std::array<Export, kMost> entries;
};

class ExportTable {
 public:
  static Result<ExportTable> create();
  int fd() const { return memory_.fd(); }
  void add(const void* base, Bytes bytes, int fd);
  void remove(const void* base);
  /// From now on, who looks for bytes of [base + from, base + to) finds none. All that was taken of the region before lies within.
  void take(const void* base, uint64_t from, uint64_t to) noexcept;

 private:
  ExportList& list() const { return *reinterpret_cast<ExportList*>(memory_.data()); }
  static void change(Export& entry, uint64_t base, uint64_t bytes, int64_t fd);
  /// Of the region; null: it is not listed.
  Export* find(const void* base);
  Mapping memory_;
};

class ImportTable {
 public:
  /// The table of process `pid` behind its descriptor `fd`. SystemError where the system does not let this process have it.
  static Result<ImportTable> open(int64_t pid, int fd);
  /// Where [address, address + bytes) of the other process is mapped here; null when it is not in its table or cannot be mapped.
  std::byte* find(uint64_t address, uint64_t bytes);

 private:
  struct Region {
    uint64_t base = 0;
    uint64_t bytes = 0;
    uint64_t version = 0;
    size_t index = 0;
    uint64_t takenFrom = 0;
    uint64_t takenTo = 0;
    Mapping here;
  };
  const ExportList& list() const { return *reinterpret_cast<const ExportList*>(memory_.data()); }
  void refresh();

  int64_t pid_ = 0;
  Mapping memory_;
  uint64_t seenChanges_ = 0;
  std::map<uint64_t, Region> regions_;  // by base
  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();
};

}  // namespace tutti::memory
