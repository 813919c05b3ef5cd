// Writes a request's tokens and their number.
#pragma once
#include "limits.h"
#include "order.h"

namespace spec {

using AscendC::GlobalTensor;

class Output {
 public:
  SPEC_FN void init(AscendC::TPipe& pipe, Address tokens, Address counts, uint32_t width) {
    tokens_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(tokens));
    counts_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(counts));
    width_ = width;
    pipe.InitBuffer(row_, (kMaxDrafts + 1) * 4);
    pipe.InitBuffer(count_, kBlock);
  }

  SPEC_FN void set(uint32_t position, int32_t token) {
    row_.Get<int32_t>().SetValue(position, token);
  }

  // Pads the first `count` tokens with -1 and writes them.
  SPEC_FN void write(uint32_t request, uint32_t count) {
    for (uint32_t i = count; i < width_; ++i) set(i, -1);
    count_.Get<int32_t>().SetValue(0, static_cast<int32_t>(count));
    order<HardEvent::S_MTE3>();
    AscendC::DataCopyPad(tokens_[static_cast<uint64_t>(request) * width_], row_.Get<int32_t>(),
                         AscendC::DataCopyExtParams(1, width_ * 4, 0, 0, 0));
    AscendC::DataCopyPad(counts_[request], count_.Get<int32_t>(),
                         AscendC::DataCopyExtParams(1, 4, 0, 0, 0));
    order<HardEvent::MTE3_S>();
  }

 private:
  GlobalTensor<int32_t> tokens_, counts_;
  AscendC::TBuf<AscendC::TPosition::VECOUT> row_, count_;
  uint32_t width_;
};

}  // namespace spec
