#include "connect/connections.h"

#include <utility>

namespace tutti::connect {

using transport::local::PipeKey;

namespace {

/// The end under `key`, opened on first use. `more`: what its constructor takes beside the pipe.
template <class End, class... More>
Result<End*> openEnd(std::map<PipeKey, std::unique_ptr<End>>& ends, transport::local::Hub& hub, const PipeKey& key, const PipeSize& size,
                     More... more) {
  auto& end = ends[key];
  if (!end) {
    const auto view = hub.pipe(key, size.slots, size.slotBytes);
    if (!view) return tl::unexpected(view.error());
    end = std::make_unique<End>(*view, more...);
  }
  return end.get();
}

}  // namespace

Connections::~Connections() {
  for (const auto& [key, end] : receives_)
    if (end) hub_.unwatch(end->copy());
}

Result<transport::local::SendEnd*> Connections::sendEnd(ChannelId channel, uint8_t port, Rank to, const PipeSize& size) {
  return openEnd(sends_, hub_, PipeKey{channel, port, rank_, to}, size, to, stores(to),
                 static_cast<const transport::local::Neighbour*>(neighbour(to)));
}

Result<transport::local::RecvEnd*> Connections::recvEnd(ChannelId channel, uint8_t port, Rank from, const PipeSize& size) {
  const PipeKey key{channel, port, from, rank_};
  const bool isNew = receives_[key] == nullptr;
  const auto end = openEnd(receives_, hub_, key, size);
  if (!end || !isNew) return end;
  try {
    hub_.watch((*end)->copy());
  } catch (...) {  // without memory: nobody may use what is not watched
    receives_.erase(key);
    throw;
  }
  return end;
}

Result<const transport::local::PipeView*> Connections::lead(ChannelId channel, uint8_t port, Rank from, Rank to, const PipeSize& size) {
  const PipeKey key{channel, port, from, to};
  const auto found = leads_.find(key);
  if (found != leads_.end()) return &found->second;
  const auto view = hub_.pipe(key, size.slots, size.slotBytes);
  if (!view) return tl::unexpected(view.error());
  return &leads_.emplace(key, *view).first->second;
}

Result<const transport::local::WindowView*> Connections::window(Rank rank, uint64_t cellBytes) {
  const auto found = windows_.find(rank.value);
  if (found != windows_.end()) return &found->second;
  const auto view = hub_.window(rank, cellBytes);
  if (!view) return tl::unexpected(view.error());
  return &windows_.emplace(rank.value, *view).first->second;
}

}  // namespace tutti::connect
