// A core's view of a launch of verify_sample: tensors, buffers, and what a row and a request are.
#pragma once
#include "../common/arithmetic.h"
#include "../common/output.h"
#include "../common/requests.h"
#include "../common/tiles.h"
#include "arguments.h"

namespace spec {

struct SampleArguments {
  Address logits, drafts, ends, temperature, top_k, top_p, min_p, draft_probs, accept_uniform,
      sample_uniform, tokens, counts, workspace;
  uint32_t num_reqs, num_rows, vocab_size, max_draft_len;
  uint64_t row_stride, draft_stride;
  uint32_t tile, flags;
};

struct Request {
  uint32_t index, first_draft, num_drafts;
  float temperature;
  float beta;  // 1 / temperature
  bool greedy;
};

enum class RowState : uint32_t { kNormal = 0, kDead = 1, kInfinite = 2 };

// A sampled row's distribution: exp((x - top) * beta) where x >= threshold, over the sum. The
// draft's weight is kept apart from the rest: what remains without it then has no cancellation.
struct Row {
  uint32_t index;
  uint32_t draft_row;  // of draft_probs
  int32_t draft;       // -1: none
  float top, beta;
  float rest;          // weights of all kept tokens but the draft
  float draft_weight;  // 0 if it is not kept
  float draft_logit;
  float threshold;
  RowState state;

  SPEC_FN float total() const { return rest + draft_weight; }
  SPEC_FN float draft_prob() const { return draft_weight / total(); }
};

template <typename In>
struct Context {
  SampleArguments args;
  uint32_t core, cores, num_tiles;

  Tiles<In> tiles;
  Requests requests;
  Output output;
  GlobalTensor<float> temperature, top_p, min_p, draft_probs;
  GlobalTensor<int32_t> top_k;
  GlobalTensor<uint64_t> accept_uniform, sample_uniform;  // the bits of float64
  GlobalTensor<float> tile_records, block_maxima, row_records, jobs, masses, active, reports, lists;

  // A tile each. Copies land in them, too.
  LocalTensor<float> weights, list, work;
  LocalTensor<uint8_t> mask, other_mask;
  LocalTensor<float> records;  // of a row's tiles
  LocalTensor<float> factors;  // of the same length
  LocalTensor<float> sums;     // a repeat for each count and mass of a pass
  LocalTensor<float> cells;    // what the scalar unit reads
  LocalTensor<float> small;    // lands small copies
  LocalTensor<float> staged;   // leaves for global memory
  LocalTensor<float> values;   // of the scalar unit alone: masses of a row's tiles
  LocalTensor<float> chances;  // likewise: weights of the block rule

  SPEC_FN bool has(uint32_t flags) const { return (args.flags & flags) != 0; }
  SPEC_FN Split split() const { return Split(args.num_rows, num_tiles, cores); }

  SPEC_FN Request request(uint32_t index) const {
    Request found;
    found.index = index;
    found.first_draft = requests.first_draft(index);
    found.num_drafts = requests.end_draft(index) - found.first_draft;
    found.temperature = temperature.GetValue(index);
    found.greedy = found.temperature <= 0.0f;
    const float beta = 1.0f / found.temperature;
    found.beta = beta < kLargest ? beta : kLargest;
    return found;
  }
  SPEC_FN uint32_t row_of(const Request& request, uint32_t position) const {
    return request.first_draft + request.index + position;
  }
  SPEC_FN int32_t draft_at(const Request& request, uint32_t position) const {
    return position < request.num_drafts ? requests.draft(request.first_draft + position) : -1;
  }
  SPEC_FN bool draft_in(int32_t draft, uint32_t tile) const {
    return draft >= 0 && static_cast<uint32_t>(draft) / args.tile == tile;
  }
  SPEC_FN uint32_t place_in_tile(int32_t draft) const {
    return static_cast<uint32_t>(draft) % args.tile;
  }
  SPEC_FN bool top_k_on(uint32_t request) const {
    if (!has(kHasTopK)) return false;
    const int32_t k = top_k.GetValue(request);
    return k > 0 && static_cast<uint32_t>(k) < args.vocab_size;
  }

 private:
  AscendC::TBuf<AscendC::TPosition::VECIN> landing_[3], records_, small_;
  AscendC::TBuf<AscendC::TPosition::VECCALC> scratch_;
  AscendC::TBuf<AscendC::TPosition::VECOUT> factors_, staged_;

 public:
  SPEC_FN void init(AscendC::TPipe& pipe, const SampleArguments& given) {
    args = given;
    core = static_cast<uint32_t>(AscendC::GetBlockIdx());
    cores = static_cast<uint32_t>(AscendC::GetBlockNum());
    tiles.init(pipe, args.logits, args.vocab_size, args.row_stride, args.tile);
    num_tiles = tiles.count();
    requests.init(args.drafts, args.ends, args.num_reqs);
    output.init(pipe, args.tokens, args.counts, args.max_draft_len + 1);
    init_inputs();
    init_workspace();
    init_buffers(pipe);
  }

 private:
  SPEC_FN void init_inputs() {
    temperature.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(args.temperature));
    top_k.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(args.top_k));
    top_p.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(args.top_p));
    min_p.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(args.min_p));
    draft_probs.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(args.draft_probs));
    accept_uniform.SetGlobalBuffer(reinterpret_cast<__gm__ uint64_t*>(args.accept_uniform));
    sample_uniform.SetGlobalBuffer(reinterpret_cast<__gm__ uint64_t*>(args.sample_uniform));
  }

  SPEC_FN GlobalTensor<float> part(uint64_t offset) const {
    GlobalTensor<float> found;
    found.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(args.workspace + offset));
    return found;
  }
  SPEC_FN void init_workspace() {
    const SampleWorkspace at(args.num_rows, num_tiles, cores, args.flags);
    tile_records = part(at.tile_records);
    block_maxima = part(at.block_maxima);
    row_records = part(at.row_records);
    jobs = part(at.jobs);
    masses = part(at.masses);
    active = part(at.active);
    reports = part(at.reports);
    lists = part(at.lists);
  }

  // Bytes of the scratch buffer's parts.
  static constexpr uint32_t kMaskBytes = kTile / 8;
  static constexpr uint32_t kSumBytes = 2 * kPivots * kLanes * 4;
  static constexpr uint32_t kCellBytes = kTile / kLanes * 4 + 2 * kBlock;
  static constexpr uint32_t kValueBytes = kMaxTiles * 4;
  static constexpr uint32_t kChanceBytes = (kMaxDrafts + 1) * 4;
  static constexpr uint32_t kRecordBytes = kMaxTiles * kBlock;
  static constexpr uint32_t kSmallBytes = kMaxCores * kBlock;
  static constexpr uint32_t kStagedBytes = (kMaxDrafts + 1) * kBlock;
  static_assert(input_bytes(2) >= input_bytes(4), "below, the larger of the two");

 public:
  // Of all of its buffers.
  static constexpr uint32_t kBytes =
      input_bytes(2) + 3 * kFloats + 2 * kMaskBytes + kSumBytes + kCellBytes + kValueBytes +
      kChanceBytes + 2 * kRecordBytes + kSmallBytes + kStagedBytes + (kMaxDrafts + 1) * 4 + kBlock;

 private:
  static_assert(kBytes <= kUsable,
                "verify_sample's buffers do not fit: lower kTile, kMaxTiles or kMaxDrafts");

  SPEC_FN void init_buffers(AscendC::TPipe& pipe) {
    for (auto& buffer : landing_) pipe.InitBuffer(buffer, kFloats);
    weights = landing_[0].template Get<float>();
    list = landing_[1].template Get<float>();
    work = landing_[2].template Get<float>();
    pipe.InitBuffer(scratch_, 2 * kMaskBytes + kSumBytes + kCellBytes + kValueBytes +
                                  kChanceBytes);
    const LocalTensor<uint8_t> bytes = scratch_.template Get<uint8_t>();
    mask = bytes;
    other_mask = bytes[kMaskBytes];
    sums = bytes[2 * kMaskBytes].template ReinterpretCast<float>();
    cells = bytes[2 * kMaskBytes + kSumBytes].template ReinterpretCast<float>();
    values = bytes[2 * kMaskBytes + kSumBytes + kCellBytes].template ReinterpretCast<float>();
    chances = values[kMaxTiles];
    pipe.InitBuffer(records_, kRecordBytes);
    pipe.InitBuffer(factors_, kRecordBytes);
    pipe.InitBuffer(small_, kSmallBytes);
    pipe.InitBuffer(staged_, kStagedBytes);
    records = records_.template Get<float>();
    factors = factors_.template Get<float>();
    small = small_.template Get<float>();
    staged = staged_.template Get<float>();
    // Whole repeats are compared where fewer elements count, and records have unused lanes.
    for (auto& buffer : landing_) AscendC::Duplicate(buffer.template Get<float>(), 0.0f, kTile);
    AscendC::Duplicate(records, 0.0f, kRecordBytes / 4);
    AscendC::Duplicate(factors, 0.0f, kRecordBytes / 4);
    AscendC::Duplicate(staged, 0.0f, kStagedBytes / 4);
    full_order();
  }
};

// Copies between global memory and buffers, ordered against the scalar and the vector unit.
SPEC_FN void copy_in(const LocalTensor<float>& to, const GlobalTensor<float>& from,
                     uint32_t count) {
  order<HardEvent::S_MTE2>();
  order<HardEvent::V_MTE2>();
  AscendC::DataCopyPad(to, from, AscendC::DataCopyExtParams(1, count * 4, 0, 0, 0),
                       AscendC::DataCopyPadExtParams<float>(false, 0, 0, 0.0f));
  order<HardEvent::MTE2_S>();
  order<HardEvent::MTE2_V>();
}

// The scalar unit has filled the buffer; it may do so again afterwards.
SPEC_FN void copy_out(const GlobalTensor<float>& to, const LocalTensor<float>& from,
                      uint32_t count) {
  order<HardEvent::S_MTE3>();
  AscendC::DataCopyPad(to, from, AscendC::DataCopyExtParams(1, count * 4, 0, 0, 0));
  order<HardEvent::MTE3_S>();
}

}  // namespace spec
