// verify_greedy: one launch finds each row's argmax and each request's accepted drafts.
//
// Split: phase 1, each core scans its tiles and leaves the best of its share of a row; phase 2,
// each request's core puts the shares together and compares with the drafts.
// By request: a core scans a request's rows in turn and stops at the first mismatch.
#pragma once
#include "../common/arithmetic.h"
#include "../common/layout.h"
#include "../common/output.h"
#include "../common/requests.h"
#include "../common/tiles.h"

namespace spec {

struct GreedyArguments {
  Address logits, drafts, ends, tokens, counts, workspace;
  uint32_t num_reqs, num_rows, vocab_size, max_draft_len;
  uint64_t row_stride;
  uint32_t tile, by_request;
};

struct Best {
  float logit = -kInfinity;
  int32_t token = 0;  // of a row with nothing above -inf

  SPEC_FN void take(float other, int32_t other_token) {
    if (other > logit) {
      logit = other;
      token = other_token;
    }
  }
};

template <typename In>
class VerifyGreedy {
 public:
  SPEC_FN void init(AscendC::TPipe& pipe, const GreedyArguments& args) {
    args_ = args;
    tiles_.init(pipe, args.logits, args.vocab_size, args.row_stride, args.tile);
    requests_.init(args.drafts, args.ends, args.num_reqs);
    output_.init(pipe, args.tokens, args.counts, args.max_draft_len + 1);
    shares_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(args.workspace));
    pipe.InitBuffer(mask_, kTile / 8);
    pipe.InitBuffer(scratch_, kReduceScratch);
    pipe.InitBuffer(found_, kBlock);
    pipe.InitBuffer(share_, kBlock);
    pipe.InitBuffer(shares_in_, kMaxCores * kBlock);
    core_ = static_cast<uint32_t>(AscendC::GetBlockIdx());
    cores_ = static_cast<uint32_t>(AscendC::GetBlockNum());
  }

  SPEC_FN void run() {
    if (args_.by_request == 0) {
      leave_shares();
      AscendC::SyncAll();
    }
    for (uint32_t request = core_; request < args_.num_reqs; request += cores_) verify(request);
  }

 private:
  SPEC_FN Split split() const { return Split(args_.num_rows, tiles_.count(), cores_); }

  SPEC_FN void verify(uint32_t request) {
    const uint32_t first = requests_.first_draft(request), end = requests_.end_draft(request);
    uint32_t count = 0;
    for (uint32_t index = first;; ++index) {
      const uint32_t row = index + request;
      const Best best = args_.by_request != 0 ? scan(row, 0, tiles_.count()) : joined(row);
      output_.set(count++, best.token);
      if (index == end || requests_.draft(index) != best.token) break;
    }
    output_.write(request, count);
  }

  // The best of tiles [begin, end) of a row.
  SPEC_FN Best scan(uint32_t row, uint32_t begin, uint32_t end) {
    Best best;
    if (begin < end) tiles_.fetch(row, begin);
    for (uint32_t tile = begin; tile < end; ++tile) {
      if (tile + 1 < end) tiles_.fetch(row, tile + 1);
      const LocalTensor<float> x = tiles_.take(tile);
      scan_tile(best, x, tile);
      tiles_.release();
    }
    return best;
  }

  SPEC_FN void scan_tile(Best& best, const LocalTensor<float>& x, uint32_t tile) {
    const uint32_t n = tiles_.length(tile);
    float top = largest(x, n);
    if (is_nan(top)) {
      drop_nan(x, mask_.Get<uint8_t>(), round_up(n, kLanes));
      top = largest(x, n);
    }
    const uint32_t place = bits_of(found_.Get<float>().GetValue(1));
    end_scalar();
    best.take(top, static_cast<int32_t>(tiles_.first_column(tile) + place));
  }

  // Leaves the order with the vector unit to end_scalar(), or to the next call.
  SPEC_FN float largest(const LocalTensor<float>& x, uint32_t n) {
    const LocalTensor<float> found = found_.Get<float>();
    end_scalar();
    AscendC::ReduceMax(found, x, scratch_.Get<float>(), static_cast<int32_t>(n), true);
    begin_scalar();
    return found.GetValue(0);
  }

  SPEC_FN void leave_shares() {
    const Split cut = split();
    const uint64_t end = cut.first(core_ + 1);
    for (uint64_t at = cut.first(core_); at < end;) {
      const auto row = static_cast<uint32_t>(at / cut.tiles_per_row);
      const auto begin = static_cast<uint32_t>(at % cut.tiles_per_row);
      const auto stop = least(cut.tiles_per_row, begin + static_cast<uint32_t>(end - at));
      leave(row, scan(row, begin, stop));
      at += stop - begin;
    }
  }

  SPEC_FN void leave(uint32_t row, const Best& best) {
    const LocalTensor<float> share = share_.Get<float>();
    share.SetValue(0, best.logit);
    share.ReinterpretCast<int32_t>().SetValue(1, best.token);
    order<HardEvent::S_MTE3>();
    AscendC::DataCopyPad(shares_[slot_of(row, core_) * (kBlock / 4)], share,
                         AscendC::DataCopyExtParams(1, 8, 0, 0, 0));
    order<HardEvent::MTE3_S>();
  }

  SPEC_FN Best joined(uint32_t row) {
    const Split cut = split();
    const uint32_t from = cut.first_core(row), count = cut.last_core(row) - from + 1;
    const LocalTensor<float> in = shares_in_.Get<float>();
    order<HardEvent::S_MTE2>();
    const AscendC::DataCopyExtParams copy(static_cast<uint16_t>(count), 8, kBlock - 8, 0, 0);
    AscendC::DataCopyPad(in, shares_[slot_of(row, from) * (kBlock / 4)], copy,
                         AscendC::DataCopyPadExtParams<float>(false, 0, 0, 0.0f));
    order<HardEvent::MTE2_S>();
    Best best;
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t at = i * (kBlock / 4);
      best.take(in.GetValue(at), in.ReinterpretCast<int32_t>().GetValue(at + 1));
    }
    return best;
  }

  GreedyArguments args_;
  Tiles<In> tiles_;
  Requests requests_;
  Output output_;
  GlobalTensor<float> shares_;
  AscendC::TBuf<AscendC::TPosition::VECCALC> mask_, scratch_, found_;
  AscendC::TBuf<AscendC::TPosition::VECOUT> share_;
  AscendC::TBuf<AscendC::TPosition::VECIN> shares_in_;
  uint32_t core_, cores_;
};

static_assert(input_bytes(2) + kTile / 8 + kReduceScratch + kMaxCores * kBlock + 4 * 1024 <=
                  kUsable,
              "verify_greedy's buffers do not fit: shorten kTile");

}  // namespace spec
