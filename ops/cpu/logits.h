// The target's logits, row by row and block by block, as floats.
#pragma once

#include <cstdint>

#include "block_math.h"

namespace spec {

enum class DType : int64_t { kFloat32 = 0, kBFloat16 = 1, kFloat16 = 2 };

struct Logits {
  const void* data;
  DType dtype;
  int64_t row_stride;  // in elements
  int vocab;
};

// One row. NaN is passed through: the arithmetic gives it no weight. Rows whose largest logit is
// infinite are repaired on the fly, so that the arithmetic sees finite maxima only: where some
// logits are +inf, these become 0 and all others -inf; where all are -inf, token 0 becomes 0.
class Row {
 public:
  Row(const Logits& logits, int64_t index);

  int vocab() const { return vocab_; }
  int num_blocks() const { return (vocab_ - 1) / kBlock + 1; }
  int num_chunks() const { return (vocab_ - 1) / kChunk + 1; }
  int block_size(int block) const {
    const int left = vocab_ - block * kBlock;
    return left < kBlock ? left : kBlock;
  }
  // n values; `buffer` [n] is used where they cannot be read in place.
  const float* values(int first, int n, float* buffer) const;
  const float* block(int block, float* buffer) const {
    return values(block * kBlock, block_size(block), buffer);
  }
  float at(int token) const {
    if (is_in_place()) return reinterpret_cast<const float*>(data_)[token];
    return converted(token);
  }
  // To be called if the row's maximum is infinite; returns the repaired row's maximum.
  float repair(float max);

 private:
  enum class Repair { kNone, kInfinite, kDead };
  bool is_in_place() const { return dtype_ == DType::kFloat32 && repair_ == Repair::kNone; }
  float converted(int token) const;
  float repaired(float value, int token) const;

  const char* data_;
  DType dtype_;
  int vocab_;
  Repair repair_ = Repair::kNone;
};

}  // namespace spec
