// Messages for tests, and ways to damage them.
#pragma once

#include <random>

#include "bootstrap/messages.h"

namespace tutti::bootstrap::samples {

inline Member member(uint64_t token, int addresses = 2) {
  Member member{token, static_cast<int32_t>(token * 10), token % 3, "host" + std::to_string(token % 3), {}};
  for (int i = 0; i < addresses; ++i) {
    Address address = *parseAddress(i % 2 == 0 ? "192.0.2.1" : "2001:db8::5");
    address.port = static_cast<uint16_t>(4000 + i);
    member.addresses.push_back(address);
  }
  return member;
}

inline Enroll enroll() {
  Enroll message;
  message.division = {8, 2, 1};
  message.firstId[7] = 9;
  message.member = member(5);
  message.rank = 6;
  message.note[100] = std::byte{33};
  message.setUpMs = 1234;
  return message;
}

inline Part part() {
  Part message;
  message.division = {8, 2, 1};
  message.members = {member(5), member(6, 0)};
  for (int32_t rank = 4; rank < 8; ++rank) message.entries.push_back({rank, rank % 2, {}});
  return message;
}

inline Table table() {
  Table message;
  message.number = 77;
  message.key[3] = 4;
  message.setUpMs = 30'000;
  message.members = {member(1), member(2), member(3, 0)};
  message.memberOf = {0, 1, 0, 2, 1};
  message.notes.resize(5);
  message.notes[4][0] = std::byte{1};
  return message;
}

/// Changes, cuts, lengthens, or copies parts of `bytes` onto others.
template <class Bytes>  // of std::byte or char
void damage(Bytes& bytes, std::mt19937& random) {
  using Byte = Bytes::value_type;
  for (auto times = 1 + random() % 3; times > 0; --times) {
    const auto how = random() % 6;
    if (bytes.empty() || how == 0) {
      for (auto i = random() % 9; i > 0; --i) bytes.push_back(static_cast<Byte>(random()));
    } else if (how == 1) {
      bytes.resize(random() % bytes.size());
    } else if (how == 2) {
      const size_t from = random() % bytes.size();
      const size_t to = random() % bytes.size();
      const size_t size = random() % (bytes.size() - std::max(from, to));
      Bytes copy(bytes.begin() + static_cast<std::ptrdiff_t>(from),
                                  bytes.begin() + static_cast<std::ptrdiff_t>(from + size));
      std::copy(copy.begin(), copy.end(), bytes.begin() + static_cast<std::ptrdiff_t>(to));
    } else if (how == 3) {
      bytes[random() % bytes.size()] = static_cast<Byte>(random() % 2 == 0 ? 0xff : 0);
    } else {
      bytes[random() % bytes.size()] ^= static_cast<Byte>(1U << (random() % 8));
    }
  }
}

}  // namespace tutti::bootstrap::samples
