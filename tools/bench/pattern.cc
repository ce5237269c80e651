#include "bench/pattern.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "bench/draw.h"
#include "bench/float_format.h"
#include "core/format.h"

namespace tutti::bench {
namespace {

uint64_t loadCode(const std::byte* data, uint32_t size) {
  uint64_t code = 0;
  std::memcpy(&code, data, size);  // little-endian machines only, like the library
  return code;
}

/// Calls visit(place, entry, run) for each stretch of [0, count) that is contiguous in a table of `period` entries.
template <class Visit>
void forEachRun(uint64_t count, uint64_t first, uint64_t period, Visit&& visit) {
  uint64_t entry = first % period;
  for (uint64_t place = 0; place < count;) {
    const uint64_t run = std::min(period - entry, count - place);
    visit(place, entry, run);
    place += run;
    entry = 0;
  }
}

}  // namespace

Table::Table(DataType type, uint64_t period) : type_(type), period_(period), bytes_(period * sizeOf(type)) {}

void Table::set(uint64_t index, const Expected& expected) {
  std::memcpy(bytes_.data() + index * sizeOf(type_), &expected.code, sizeOf(type_));
  if (expected.tolerance == 0) return;
  values_.resize(period_);
  tolerances_.resize(period_);
  values_[index] = expected.value;
  tolerances_[index] = expected.tolerance;
}

void Table::fill(void* data, uint64_t count, uint64_t first) const {
  const uint32_t size = sizeOf(type_);
  auto* bytes = static_cast<std::byte*>(data);
  forEachRun(count, first, period_, [&](uint64_t place, uint64_t entry, uint64_t run) {
    std::memcpy(bytes + place * size, bytes_.data() + entry * size, run * size);
  });
}

bool Table::isRight(uint64_t code, uint64_t entry) const {
  const uint32_t size = sizeOf(type_);
  if (code == loadCode(bytes_.data() + entry * size, size)) return true;
  if (tolerances_.empty() || tolerances_[entry] == 0) return false;
  const FloatFormat& format = formatOf(type_);
  return !isSpecial(format, code) && std::fabs(decode(format, code) - values_[entry]) <= tolerances_[entry];
}

std::string Table::describe(uint64_t code, uint64_t entry) const {
  const uint32_t size = sizeOf(type_);
  const uint64_t wanted = loadCode(bytes_.data() + entry * size, size);
  const auto digits = static_cast<int>(2 * size);
  std::string text = format("is 0x{:0{}x}, should be 0x{:0{}x}", code, digits, wanted, digits);
  if (isInteger(type_)) return text;
  const FloatFormat& form = formatOf(type_);
  if (!isSpecial(form, code) && !isSpecial(form, wanted)) text += format(" ({} instead of {})", decode(form, code), decode(form, wanted));
  if (!tolerances_.empty()) text += format(" within {:.3g}", tolerances_[entry]);
  return text;
}

Table::Mismatch Table::compare(const void* data, uint64_t count, uint64_t first) const {
  const uint32_t size = sizeOf(type_);
  const auto* bytes = static_cast<const std::byte*>(data);
  Mismatch mismatch;
  forEachRun(count, first, period_, [&](uint64_t place, uint64_t entry, uint64_t run) {
    if (std::memcmp(bytes + place * size, bytes_.data() + entry * size, run * size) == 0) return;
    for (uint64_t i = 0; i < run; ++i) {
      const uint64_t code = loadCode(bytes + (place + i) * size, size);
      if (isRight(code, entry + i)) continue;
      if (mismatch.wrong++ != 0) continue;
      mismatch.index = place + i;
      mismatch.text = describe(code, entry + i);
    }
  });
  return mismatch;
}

Pattern::Pattern(DataType type, std::optional<RedOp> op, int ranks, uint64_t number)
    : inputs_(static_cast<size_t>(ranks), Table(type, kPeriods[number % kPeriods.size()])),
      reduced_(type, kPeriods[number % kPeriods.size()]) {
  const uint64_t period = kPeriods[number % kPeriods.size()];
  std::vector<uint64_t> codes(inputs_.size());
  std::vector<uint64_t> scalars(inputs_.size());
  for (int rank = 0; rank < ranks; ++rank) scalars[static_cast<size_t>(rank)] = drawScalar(type, rank);
  for (uint64_t index = 0; index < period; ++index) {
    drawElement(type, op, number + 1, index, codes);
    for (size_t r = 0; r < codes.size(); ++r) inputs_[r].set(index, Expected{codes[r], 0, 0});
    if (op) reduced_.set(index, reduceReference(type, *op, codes, scalars));
  }
}

}  // namespace tutti::bench
