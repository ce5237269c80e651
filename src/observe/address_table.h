// The log's tables of addresses: which of a peer's a connection took, and why it left the others.
//
// Owner: whoever connects. Any thread.
// 1. A peer with one address has no table: there was nothing to choose.
// 2. Tables in which the same came out differ in names alone: the first is written, after that each time their number has doubled how
//    many there are. A process with thousands of peers so writes a few lines. The same holds for all tables beyond kMostTables.
// 3. Nothing is kept where the log does not show it.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "observe/log.h"

namespace tutti::observe {

class AddressTable {
 public:
  struct Row {
    std::string address;  ///< "192.0.2.1:80"
    std::string refusal;  ///< why it was left, without the address; empty: it was taken
  };
  static constexpr size_t kMostTables = 64;

  /// `head`: how its lines begin, "Bootstrap".
  AddressTable(Subsys subsys, std::string_view head) : subsys_(subsys), head_(head) {}

  bool isShown() const { return enabled(Level::Info, subsys_); }
  /// A connection to `peer` stands. `rows`: all its addresses, in the order in which they were offered.
  void add(std::string_view peer, std::span<const Row> rows);

 private:
  const Subsys subsys_;
  const std::string head_;
  std::mutex mutex_;
  std::map<std::string, uint64_t> outcomes_;  // how often, by the refusals of all rows
};

}  // namespace tutti::observe
