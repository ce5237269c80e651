#include "transport/device/parking.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tutti::transport::device {

Result<std::shared_ptr<HostPages::Registered>> HostPages::use(const memory::Gpu& gpu, void* data, Bytes bytes,
                                                              std::shared_ptr<local::Hub> hub) {
  std::shared_ptr<Registered> known;  // destroyed, if it is the last, after the lock is gone
  const std::lock_guard lock(mutex_);
  std::erase_if(known_, [](const auto& entry) { return entry.second.expired(); });
  if (const auto found = known_.find(data); found != known_.end()) known = found->second.lock();
  if (known != nullptr) return known;
  auto memory = memory::RegisteredHost::make(gpu, data, bytes);
  if (!memory) return tl::unexpected(std::move(memory).error());
  auto registered = std::make_shared<Registered>();
  registered->hub = std::move(hub);
  registered->memory = std::move(*memory);
  known_[data] = registered;
  return registered;
}

namespace {

bool outlivesItsGraphs(const Parking::Car& car) {
  const auto& graphs = car.kept.graphs;
  return !car.kept.forEver && !graphs.empty() && std::all_of(graphs.begin(), graphs.end(), [](const auto& graph) {
    return graph->isGone.load(std::memory_order_acquire);  // pairs with whoever made the mark
  });
}

bool isFree(const Parking::Car& car) {
  for (int32_t r = 0; r < car.page.ranks(); ++r) {
    const bool hasLeft = car.page.rank(r).left.load(std::memory_order_acquire) != 0;  // pairs with ~Endpoint
    if (!hasLeft && car.hub->isAlive(Rank(r))) return false;
  }
  return true;
}

}  // namespace

/// Now nothing of the rank's can run any more.
void Parking::letGo(Car& car) {
  car.reached.clear();
  car.kept = {};
  car.page.rank(car.rank.value).left.store(1, std::memory_order_release);  // pairs with isFree()
}

void Parking::arrive() {
  const std::lock_guard lock(mutex_);
  ++present_;
}

void Parking::leave(Car car) {
  {
    const std::lock_guard lock(mutex_);
    --present_;
    cars_.push_back(std::move(car));
  }
  (void)sweep();
}

size_t Parking::sweep() {
  std::vector<Car> done;  // with their graphs; all is given back without the lock
  {
    const std::lock_guard lock(mutex_);
    const auto others = std::partition(cars_.begin(), cars_.end(), [](const Car& car) { return !outlivesItsGraphs(car); });
    done.assign(std::make_move_iterator(others), std::make_move_iterator(cars_.end()));
    cars_.erase(others, cars_.end());
  }
  for (Car& car : done) letGo(car);
  std::vector<Car> gone;
  std::vector<std::shared_ptr<HostPages::Registered>> pages;
  const std::lock_guard lock(mutex_);
  cars_.insert(cars_.end(), std::make_move_iterator(done.begin()), std::make_move_iterator(done.end()));
  const auto busy = std::partition(cars_.begin(), cars_.end(), [](const Car& car) { return !isFree(car); });
  gone.assign(std::make_move_iterator(busy), std::make_move_iterator(cars_.end()));
  cars_.erase(busy, cars_.end());
  for (Car& car : gone) retired_.push_back(std::move(car.registered));
  if (present_ == 0) pages.swap(retired_);
  return gone.size();
}

size_t Parking::size() const {
  const std::lock_guard lock(mutex_);
  return cars_.size();
}

}  // namespace tutti::transport::device
