// Writes a request's tokens and their number.
#pragma once
#include "limits.h"
#include "order.h"

namespace spec {

using AscendC::GlobalTensor;

// One row of a result for each request, padded with -1. The scalar unit fills it.
class PaddedRow {
 public:
  SPEC_FN void init(AscendC::TPipe& pipe, Address rows, uint32_t width) {
    rows_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(rows));
    width_ = width;
    pipe.InitBuffer(row_, (kMaxDrafts + 1) * 4);
  }

  SPEC_FN void set(uint32_t position, int32_t value) {
    row_.Get<int32_t>().SetValue(position, value);
  }
  SPEC_FN void pad(uint32_t count) {
    for (uint32_t i = count; i < width_; ++i) set(i, -1);
  }
  // Between the scalar unit's turns.
  SPEC_FN void copy_to(uint32_t request) {
    AscendC::DataCopyPad(rows_[static_cast<uint64_t>(request) * width_], row_.Get<int32_t>(),
                         AscendC::DataCopyExtParams(1, width_ * 4, 0, 0, 0));
  }

 private:
  GlobalTensor<int32_t> rows_;
  AscendC::TBuf<AscendC::TPosition::VECOUT> row_;
  uint32_t width_;
};

class Output {
 public:
  SPEC_FN void init(AscendC::TPipe& pipe, Address tokens, Address counts, uint32_t width) {
    tokens_.init(pipe, tokens, width);
    counts_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(counts));
    pipe.InitBuffer(count_, kBlock);
  }

  SPEC_FN void set(uint32_t position, int32_t token) { tokens_.set(position, token); }

  // Pads the first `count` tokens and writes them.
  SPEC_FN void write(uint32_t request, uint32_t count) {
    tokens_.pad(count);
    count_.Get<int32_t>().SetValue(0, static_cast<int32_t>(count));
    order<HardEvent::S_MTE3>();
    tokens_.copy_to(request);
    AscendC::DataCopyPad(counts_[request], count_.Get<int32_t>(),
                         AscendC::DataCopyExtParams(1, 4, 0, 0, 0));
    order<HardEvent::MTE3_S>();
  }

 private:
  PaddedRow tokens_;
  GlobalTensor<int32_t> counts_;
  AscendC::TBuf<AscendC::TPosition::VECOUT> count_;
};

}  // namespace spec
