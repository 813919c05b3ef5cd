// Philox4x32-10 (Salmon et al., 2011), a random generator that keeps no state.
#pragma once

#include <cstdint>

namespace spec {

struct PhiloxKey {
  uint32_t low, high;
};
// The counter, and the random words that it becomes.
struct PhiloxWords {
  uint32_t x, y, z, w;
};

constexpr int kPhiloxRounds = 10;
constexpr uint32_t kPhiloxFactors[] = {0xD2511F53, 0xCD9E8D57};

// Functions are not shared between files: block_math.cpp is compiled for newer processors, too.
static inline __attribute__((always_inline)) PhiloxKey next(PhiloxKey key) {
  return {key.low + 0x9E3779B9, key.high + 0xBB67AE85};
}

// Rounds call each other, since a loop would keep compilers from vectorising what is around it.
template <int kRounds>
static inline __attribute__((always_inline)) PhiloxWords philox_rounds(
    PhiloxWords at, PhiloxKey key) {
  if constexpr (kRounds > 0) {
    const uint64_t first = uint64_t{kPhiloxFactors[0]} * at.x;
    const uint64_t second = uint64_t{kPhiloxFactors[1]} * at.z;
    return philox_rounds<kRounds - 1>(
        {static_cast<uint32_t>(second >> 32) ^ at.y ^ key.low, static_cast<uint32_t>(second),
         static_cast<uint32_t>(first >> 32) ^ at.w ^ key.high, static_cast<uint32_t>(first)},
        next(key));
  } else {
    return at;
  }
}

static inline PhiloxWords philox(PhiloxWords at, PhiloxKey key) {
  return philox_rounds<kPhiloxRounds>(at, key);
}

}  // namespace spec
