// What a launch of verify_sample gets, and its workspace. Host and device.
#pragma once
#include "../common/layout.h"

namespace spec {

enum Flag : uint32_t {
  kByRequest = 1u << 0,
  kBlockRule = 1u << 1,
  kHasTopK = 1u << 2,
  kHasTopP = 1u << 3,
  kHasMinP = 1u << 4,
  kHasDraftProbs = 1u << 5,
};
constexpr uint32_t kFilters = kHasTopK | kHasTopP | kHasMinP;

// Pivots that one pass over a row tries; the first is the bracket's lower end.
constexpr uint32_t kPivots = 8;
// Floats of a core's report on a pass: counts, masses, length of its list, whether it is whole.
constexpr uint32_t kReport = 2 * kPivots + 8;
// Floats of a data block, in which records of tiles, rows and jobs lie.
constexpr uint32_t kRecord = kBlock / 4;
// Values that a core's list holds; room for a last repeat is left. Tests make it short, to see what
// happens when it does not hold a bracket.
#ifndef SPEC_LISTED
#define SPEC_LISTED (kTile - kLanes)
#endif
constexpr uint32_t kListed = SPEC_LISTED;

// Offsets in bytes. What cores tell each other during the search is kept twice: a core may write
// for the next pass while another still reads what was written for this one.
struct SampleWorkspace {
  uint64_t tile_records, block_maxima, row_records, jobs, masses, active, reports, lists, bytes;

  SPEC_FN SampleWorkspace(uint32_t rows, uint32_t tiles, uint32_t cores, uint32_t flags) {
    const uint64_t all_tiles = static_cast<uint64_t>(rows) * tiles;
    const bool filters = (flags & kFilters) != 0;
    const bool shared = filters && (flags & kByRequest) == 0;
    Parts parts;
    tile_records = parts.take(all_tiles * kBlock);
    block_maxima = parts.take((flags & kHasTopK) != 0 ? all_tiles * kLanes * 4 : 0);
    row_records = parts.take(filters ? static_cast<uint64_t>(rows) * kBlock : 0);
    const bool jobs_given = (flags & (kFilters | kHasDraftProbs)) != 0;
    jobs = parts.take(jobs_given ? static_cast<uint64_t>(rows) * kBlock : 0);
    masses = parts.take(jobs_given ? all_tiles * kBlock : 0);
    active = parts.take(shared ? 2ull * cores * kBlock : 0);
    reports = parts.take(shared ? 4ull * cores * kReport * 4 : 0);
    lists = parts.take(shared ? 4ull * cores * kTile * 4 : 0);
    bytes = parts.end;
  }
};

}  // namespace spec
