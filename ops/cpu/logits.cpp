#include "logits.h"

#include <cmath>
#include <cstring>

namespace spec {

static int64_t item_size(DType dtype) { return dtype == DType::kFloat32 ? 4 : 2; }

static void convert(const void* from, DType dtype, int n, float* to) {
  if (dtype == DType::kBFloat16) {
    block_math().from_bfloat16(static_cast<const uint16_t*>(from), n, to);
  } else if (dtype == DType::kFloat16) {
    block_math().from_float16(static_cast<const uint16_t*>(from), n, to);
  } else {
    std::memcpy(to, from, n * sizeof(float));
  }
}

Row::Row(const Logits& logits, int64_t index)
    : data_(static_cast<const char*>(logits.data) +
            index * logits.row_stride * item_size(logits.dtype)),
      dtype_(logits.dtype),
      vocab_(logits.vocab) {}

const float* Row::values(int first, int n, float* buffer) const {
  const char* data = data_ + first * item_size(dtype_);
  if (is_in_place()) return reinterpret_cast<const float*>(data);
  convert(data, dtype_, n, buffer);
  if (repair_ != Repair::kNone) {
    for (int i = 0; i < n; i++) buffer[i] = repaired(buffer[i], first + i);
  }
  return buffer;
}

float Row::converted(int token) const {
  float value;
  convert(data_ + token * item_size(dtype_), dtype_, 1, &value);
  return repaired(value, token);
}

float Row::repair(float max) {
  repair_ = max > 0 ? Repair::kInfinite : Repair::kDead;
  return 0.0f;
}

float Row::repaired(float value, int token) const {
  if (repair_ == Repair::kNone) return value;
  const bool chosen = repair_ == Repair::kInfinite ? value == INFINITY : token == 0;
  return chosen ? 0.0f : -INFINITY;
}

}  // namespace spec
