#include "grammar_mask.h"

#include <algorithm>

namespace spec {
namespace {

constexpr int kWord = 32;

// -inf as each type's bits: a mask moves bits, it does no arithmetic.
constexpr uint32_t kFloat32NegativeInfinity = 0xff800000u;
constexpr uint16_t kBFloat16NegativeInfinity = 0xff80u;
constexpr uint16_t kFloat16NegativeInfinity = 0xfc00u;

template <class Bits>
void mask_row(Bits* row, int vocab, const int32_t* words, Bits forbidden) {
  for (int first = 0; first < vocab; first += kWord) {
    const uint32_t allowed = static_cast<uint32_t>(words[first / kWord]);
    const int n = std::min(kWord, vocab - first);
    if (allowed == 0) {
      std::fill_n(row + first, n, forbidden);
    } else if (allowed != ~0u) {
      for (int i = 0; i < n; i++) {
        row[first + i] = (allowed >> i) & 1 ? row[first + i] : forbidden;
      }
    }
  }
}

}  // namespace

void grammar_mask(void* logits, DType dtype, int64_t row_stride, int vocab, const Masks& masks,
                  int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i++) {
    if (masks.rows[i] < 0) continue;
    const int32_t* words = masks.words + i * masks.num_words;
    const int64_t first = masks.rows[i] * row_stride;
    if (dtype == DType::kFloat32) {
      mask_row(static_cast<uint32_t*>(logits) + first, vocab, words, kFloat32NegativeInfinity);
    } else {
      mask_row(static_cast<uint16_t*>(logits) + first, vocab, words,
               dtype == DType::kBFloat16 ? kBFloat16NegativeInfinity : kFloat16NegativeInfinity);
    }
  }
}

}  // namespace spec
