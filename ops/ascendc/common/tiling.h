// Host side: how many cores, how long tiles, and how much workspace a call needs.
#pragma once
#include <cstdint>
#include <string>

#include "call.h"
#include "layout.h"

namespace spec {

struct Batch {
  int64_t num_rows;
  int64_t num_reqs;
  int64_t vocab_size;
  int64_t max_draft_len;
};

// 0 and Mode::kAuto leave it to plan(); tests choose.
enum class Mode : int32_t { kAuto = 0, kSplit = 1, kByRequest = 2 };
struct Wish {
  int64_t tile = 0;
  Mode mode = Mode::kAuto;
};

// Tiles so long that copies are efficient, and so many that every core has some.
inline uint32_t choose_tile(uint64_t rows, uint64_t columns, uint32_t cores) {
  uint32_t tile = kTile;
  while (tile > kLeastTile && rows * ((columns + tile - 1) / tile) < 2 * cores) tile /= 2;
  while (tile < kTile && (columns + tile - 1) / tile > kMaxTiles) tile *= 2;
  return tile;
}

// Whether cores should do whole requests. In the last turn that leaves some cores idle. If three
// quarters of all turns are used, stopping at rejections saves more than the idle cores cost.
inline bool fills_cores(uint64_t requests, uint64_t cores) {
  const uint64_t turns = (requests + cores - 1) / cores;
  return 4 * requests >= 3 * turns * cores;
}

inline uint32_t fewer(uint64_t work, uint32_t cores) {
  return work < cores ? static_cast<uint32_t>(work) : cores;
}

// Returns what is wrong and what helps, or nothing.
inline std::string plan(const Batch& batch, uint32_t cores, const Wish& wish, Tiling& tiling) {
  if (cores < 1 || cores > kMaxCores) {
    return "num_cores: " + std::to_string(cores) + " is not in [1, " + std::to_string(kMaxCores) +
           "]";
  }
  if (batch.max_draft_len > kMaxDrafts) {
    return "max_draft_len: " + std::to_string(batch.max_draft_len) + " is more than the " +
           std::to_string(kMaxDrafts) +
           " that fit the unified buffer; draft fewer tokens, or choose backend=\"reference\"";
  }
  if (wish.tile != 0 && (wish.tile < kLanes || wish.tile > kTile || wish.tile % kLanes != 0)) {
    return "tile: " + std::to_string(wish.tile) + " is not a multiple of 64 up to " +
           std::to_string(kTile);
  }
  const auto rows = static_cast<uint64_t>(batch.num_rows);
  const auto columns = static_cast<uint64_t>(batch.vocab_size);
  tiling.tile =
      wish.tile != 0 ? static_cast<uint32_t>(wish.tile) : choose_tile(rows, columns, cores);
  const uint64_t tiles = (columns + tiling.tile - 1) / tiling.tile;
  if (tiles > kMaxTiles) {
    return "vocab_size: " + std::to_string(columns) + " needs more than " +
           std::to_string(kMaxTiles) + " tiles of " + std::to_string(tiling.tile) +
           "; the most is " + std::to_string(kMaxTiles * tiling.tile) +
           "; choose backend=\"reference\"";
  }
  const auto requests = static_cast<uint64_t>(batch.num_reqs);
  tiling.by_request = wish.mode == Mode::kByRequest ||
                      (wish.mode == Mode::kAuto && fills_cores(requests, cores));
  tiling.cores = fewer(tiling.by_request ? requests : rows * tiles, cores);
  return "";
}

}  // namespace spec
