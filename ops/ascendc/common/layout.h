// How a batch is cut for the cores, and where the cores leave what others read. Host and device.
#pragma once
#include "limits.h"

#ifndef SPEC_FN
#define SPEC_FN inline
#endif

namespace spec {

// The tiles of all rows, one row after the other, cut evenly: a core's part may begin and end
// within a row.
struct Split {
  uint32_t tiles_per_row;
  uint32_t cores;
  uint64_t total;

  SPEC_FN Split(uint32_t rows, uint32_t tiles, uint32_t num_cores)
      : tiles_per_row(tiles), cores(num_cores), total(static_cast<uint64_t>(rows) * tiles) {}

  // First tile of a core; the next core's first ends it.
  SPEC_FN uint64_t first(uint32_t core) const { return total * core / cores; }
  SPEC_FN uint32_t core_of(uint64_t tile) const {
    return static_cast<uint32_t>(((tile + 1) * cores - 1) / total);
  }
  SPEC_FN uint32_t first_core(uint32_t row) const {
    return core_of(static_cast<uint64_t>(row) * tiles_per_row);
  }
  SPEC_FN uint32_t last_core(uint32_t row) const {
    return core_of(static_cast<uint64_t>(row + 1) * tiles_per_row - 1);
  }
};

// The number of a core's share of a row. From one share to the next, the row or the core goes up
// and neither goes down, so no two shares have the same sum.
SPEC_FN uint32_t slot_of(uint32_t row, uint32_t core) { return row + core; }
SPEC_FN uint32_t num_slots(uint32_t rows, uint32_t cores) { return rows + cores; }

// Parts of a workspace, each from a multiple of 64 bytes.
struct Parts {
  uint64_t end = 0;

  SPEC_FN uint64_t take(uint64_t bytes) {
    const uint64_t start = end;
    end += (bytes + 63) / 64 * 64;
    return start;
  }
};

}  // namespace spec
