// What the searches of one kind of channels in one system have in common: the problem in numbers, its cuts, its lists of channels.
//
// Internal to the search of topo/; lives for the searches of one system; one thread.
// 1. Everything is made when it is first asked for, and stays: cuts and lists say the same whoever asks.
#pragma once

#include <memory>
#include <vector>

#include "topo/search_exact.h"

namespace tutti::topo {

class Field {
 public:
  /// Of rings, or of trees; `collnet`: only nets that reduce.
  Field(const System& system, const Paths& paths, bool trees, bool collnet);
  Field(const Field&) = delete;
  Field& operator=(const Field&) = delete;

  const System& system() const { return system_; }
  const Paths& paths() const { return paths_; }
  const Problem& problem() const { return problem_; }

  Cuts& cuts(const Mode& mode);
  Exact& exact(const Mode& mode);
  /// The cuts around groups of GPUs too, from now on.
  void addGroups(Cuts& cuts);

 private:
  template <class Value>
  struct Made {
    Mode mode;
    std::unique_ptr<Value> value;
  };

  const System& system_;
  const Paths& paths_;
  Problem problem_;
  std::vector<Made<Cuts>> cuts_;
  std::vector<Made<Exact>> exact_;
};

/// searchChannels for rings and trees; the request's pattern and nets are those of the field.
Result<ChannelSet> searchChannels(Field& field, const SearchRequest& request);

}  // namespace tutti::topo
