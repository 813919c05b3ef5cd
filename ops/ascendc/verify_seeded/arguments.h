// The workspace of a launch of verify_seeded. Host and device.
#pragma once
#include "../verify_sample/arguments.h"

namespace spec {

// Tokens of a group that has a least number. Python calls it a block, which here is 32 bytes.
constexpr uint32_t kGroup = 128;
// What is kept of a group: its random word, the token with the least number, -log of that.
constexpr uint32_t kKept = 3;

// What verify_sample has, and, where cores share rows, a record for each tile and what is kept of
// each group.
struct SeededWorkspace {
  uint64_t samples, groups, bytes;

  SPEC_FN SeededWorkspace(uint32_t rows, uint32_t tiles, uint32_t tile, uint32_t cores,
                          uint32_t flags) {
    Parts parts{SampleWorkspace(rows, tiles, cores, flags).bytes};
    const bool shared = (flags & kByRequest) == 0;
    const uint64_t all_tiles = shared ? static_cast<uint64_t>(rows) * tiles : 0;
    samples = parts.take(all_tiles * kBlock);
    groups = parts.take(all_tiles * (tile / kGroup) * kKept * 4);
    bytes = parts.end;
  }
};

}  // namespace spec
