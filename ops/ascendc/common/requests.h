// Where a request's rows and drafts are.
#pragma once
#include "scalar.h"

namespace spec {

using AscendC::GlobalTensor;

// Inputs are read through the scalar unit's cache: nobody writes them during a launch.
class Requests {
 public:
  SPEC_FN void init(Address drafts, Address ends, uint32_t count) {
    drafts_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(drafts));
    ends_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(ends), count);
    count_ = count;
  }

  SPEC_FN uint32_t count() const { return count_; }
  SPEC_FN uint32_t first_draft(uint32_t request) const {
    return request == 0 ? 0 : static_cast<uint32_t>(ends_.GetValue(request - 1));
  }
  SPEC_FN uint32_t end_draft(uint32_t request) const {
    return static_cast<uint32_t>(ends_.GetValue(request));
  }
  SPEC_FN int32_t draft(uint32_t index) const { return drafts_.GetValue(index); }
  SPEC_FN uint32_t first_row(uint32_t request) const { return first_draft(request) + request; }

  // The request that a row belongs to.
  SPEC_FN uint32_t of_row(uint32_t row) const {
    uint32_t low = 0, high = count_ - 1;
    while (low < high) {
      const uint32_t middle = (low + high + 1) / 2;
      if (first_row(middle) <= row) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }

 private:
  GlobalTensor<int32_t> drafts_, ends_;
  uint32_t count_;
};

}  // namespace spec
