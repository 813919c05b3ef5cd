// The one place that knows how large the unified buffer is and who gets how much of it.
#pragma once
#include <cstdint>

namespace spec {

constexpr uint32_t kUnifiedBuffer = 192 * 1024;    // of a vector core of Atlas A2 and A3
constexpr uint32_t kSelectReserve = 8 * 1024;      // Select's own, at the end
constexpr uint32_t kUsable = kUnifiedBuffer - kSelectReserve;

constexpr uint32_t kBlock = 32;     // bytes of a data block: copies and records are whole blocks
constexpr uint32_t kLanes = 64;     // floats of a vector instruction's repeat
constexpr uint32_t kTile = 8192;    // most logits of a tile
constexpr uint32_t kLeastTile = 2048;  // shorter copies waste bandwidth
constexpr uint32_t kMaxTiles = 128;    // of a row: their records lie in the unified buffer
constexpr uint32_t kMaxDrafts = 127;   // of a request: so do its tokens and weights
constexpr uint32_t kMaxCores = 64;

constexpr uint32_t kFloats = kTile * 4;  // bytes of a tile in float32
// Scratch of a maximum with its index: a pair for each repeat, and room for two more rounds.
constexpr uint32_t kReduceScratch = 2 * kTile / kLanes * 4 + 4 * kBlock;

// Double-buffered input; float16 and bfloat16 need a float32 copy beside it.
constexpr uint32_t input_bytes(uint32_t element_size) {
  return 2 * kTile * element_size + (element_size == 4 ? 0 : kFloats);
}

}  // namespace spec
