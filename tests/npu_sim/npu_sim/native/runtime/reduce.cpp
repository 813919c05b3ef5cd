#include "reduce.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace npu_sim {

namespace {

enum Type { kInt8, kInt16, kInt32, kHalf, kFloat, kInt64, kUint64, kUint8, kUint16, kUint32,
            kDouble, kBfloat16 };
enum Op { kSum, kProduct, kMax, kMin };

struct Bfloat16 {
  uint16_t bits;

  operator float() const {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float value;
    memcpy(&value, &wide, sizeof(value));
    return value;
  }

  // Rounds to nearest, ties to even.
  Bfloat16(float value) {
    uint32_t wide;
    memcpy(&wide, &value, sizeof(wide));
    bits = static_cast<uint16_t>((wide + 0x7fff + ((wide >> 16) & 1)) >> 16);
  }
};

// `Wide` is the type in which the arithmetic is done.
template <class T, class Wide = T>
bool reduce_as(void* into, const void* from, size_t count, int op) {
  auto* a = static_cast<T*>(into);
  auto* b = static_cast<const T*>(from);
  for (size_t i = 0; i < count; i++) {
    const Wide x = a[i], y = b[i];
    switch (op) {
      case kSum: a[i] = static_cast<T>(x + y); break;
      case kProduct: a[i] = static_cast<T>(x * y); break;
      case kMax: a[i] = static_cast<T>(std::max(x, y)); break;
      case kMin: a[i] = static_cast<T>(std::min(x, y)); break;
      default: return false;
    }
  }
  return true;
}

}  // namespace

size_t element_size(int type) {
  static const size_t sizes[] = {1, 2, 4, 2, 4, 8, 8, 1, 2, 4, 8, 2};
  return type >= kInt8 && type <= kBfloat16 ? sizes[type] : 0;
}

bool reduce(void* into, const void* from, size_t count, int type, int op) {
  switch (type) {
    case kInt8: return reduce_as<int8_t>(into, from, count, op);
    case kInt16: return reduce_as<int16_t>(into, from, count, op);
    case kInt32: return reduce_as<int32_t>(into, from, count, op);
    case kHalf: return reduce_as<_Float16, float>(into, from, count, op);
    case kFloat: return reduce_as<float>(into, from, count, op);
    case kInt64: return reduce_as<int64_t>(into, from, count, op);
    case kUint64: return reduce_as<uint64_t>(into, from, count, op);
    case kUint8: return reduce_as<uint8_t>(into, from, count, op);
    case kUint16: return reduce_as<uint16_t>(into, from, count, op);
    case kUint32: return reduce_as<uint32_t>(into, from, count, op);
    case kDouble: return reduce_as<double>(into, from, count, op);
    case kBfloat16: return reduce_as<Bfloat16, float>(into, from, count, op);
    default: return false;
  }
}

}  // namespace npu_sim
