// The samples of all rows of a batch: what verify_seeded and verify_tree have in common.
//
// Rows are cut, scanned and filtered as in verify_sample, whose context and search it uses.
#pragma once
#include "../verify_sample/search.h"
#include "arguments.h"
#include "sampler.h"

namespace spec {

// Depths: of(request, position) says how many tokens a row of a request is after its first.
template <typename In, typename Depths>
class Race {
 public:
  SPEC_FN Race(Context<In>& context, Address seeds, Address positions, const Depths& depths)
      : c(context), rows_(context), scan_(context), search_(context), sampler_(context),
        depths_(depths) {
    seeds_.SetGlobalBuffer(reinterpret_cast<__gm__ uint64_t*>(seeds));
    positions_.SetGlobalBuffer(reinterpret_cast<__gm__ uint64_t*>(positions));
    const SeededWorkspace at(c.args.num_rows, c.num_tiles, c.args.tile, c.cores, c.args.flags);
    samples_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(c.args.workspace + at.samples));
    GlobalTensor<float> groups;
    groups.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(c.args.workspace + at.groups));
    sampler_.keep_in(groups);
  }

  // What all cores do together before each takes its requests.
  SPEC_FN void run() {
    if (c.has(kByRequest)) return;
    if (c.has(kFilters)) {
      scan_.run();
      meet();
      search_.run();
    }
    survey_share();
    meet();
    sample_share();
    meet();
  }

  // The sample of a row; of a greedy request, its argmax. Its core alone asks.
  SPEC_FN int32_t token_of(const Request& request, uint32_t position) {
    const uint32_t row = c.row_of(request, position);
    if (!c.has(kByRequest)) {
      return request.greedy ? rows_.argmax(row) : joined(samples_, row, request.beta).token;
    }
    if (request.greedy || c.has(kFilters)) {
      scan_.scan(request, position, 0, c.num_tiles);
      full_order();
    }
    if (request.greedy) return rows_.argmax(row);
    if (c.has(kFilters)) {
      rows_.store(search_.filtered(request, position));
      full_order();
    }
    Sampled best;
    const Target target = target_of(request, position, best);
    sampler_.sample(target, source_of(request, position), 0, c.num_tiles, best);
    full_order();
    return best.token;
  }

 private:
  SPEC_FN void meet() {
    full_order();
    AscendC::SyncAll();
  }

  // A row's tiles [begin, end) that are this core's.
  struct Share {
    Request request;
    uint32_t position, row, begin, end;
  };
  SPEC_FN Share share_at(const Split& cut, uint64_t at) const {
    Share found;
    found.row = static_cast<uint32_t>(at / c.num_tiles);
    found.begin = static_cast<uint32_t>(at % c.num_tiles);
    found.end = least(c.num_tiles,
                      found.begin + static_cast<uint32_t>(cut.first(c.core + 1) - at));
    found.request = c.request(c.requests.of_row(found.row));
    found.position = found.row - c.row_of(found.request, 0);
    return found;
  }

  // Looks at all logits, and leaves a good token of each share. Without it a core whose share has
  // no likely tokens would look into many of them.
  SPEC_FN void survey_share() {
    const Split cut = c.split();
    for (uint64_t at = cut.first(c.core); at < cut.first(c.core + 1);) {
      const Share share = share_at(cut, at);
      at += share.end - share.begin;
      if (share.request.greedy) {
        if (!c.has(kFilters)) scan_.scan(share.request, share.position, share.begin, share.end);
        continue;
      }
      Sampled best;
      const Target target = target_of(share.request, share.position, best);
      sampler_.survey(target, source_of(share.request, share.position), share.begin, share.end,
                      best);
      full_order();
      leave(surveyed(), share, best);
    }
  }

  // Samples the tiles that may have a better token than all that the survey has found.
  SPEC_FN void sample_share() {
    const Split cut = c.split();
    for (uint64_t at = cut.first(c.core); at < cut.first(c.core + 1);) {
      const Share share = share_at(cut, at);
      at += share.end - share.begin;
      if (share.request.greedy) continue;
      Sampled best = joined(surveyed(), share.row, share.request.beta);
      Target target{share.row, share.request.beta, -kInfinity, false};
      if (c.has(kFilters)) target.threshold = rows_.load(share.request, share.position).threshold;
      const NoiseSource source = source_of(share.request, share.position);
      full_order();
      for (uint32_t tile = share.begin; tile < share.end; ++tile) {
        if (may_win(tile, target.beta, best)) sampler_.sample_again(target, source, tile, best);
      }
      full_order();
      leave(samples_, share, best);
    }
  }

  // The survey's records of the row are in c.records.
  SPEC_FN bool may_win(uint32_t tile, float beta, const Sampled& best) const {
    const float most = rows_.lane(tile, kBound), beside = rows_.lane(tile, kBeside);
    const float distance = beside == best.top ? 0.0f : (beside - best.top) * beta;
    return most > -kInfinity && most + distance >= best.goal();
  }

  // With the row's largest logit if it is known. Filtered tiles are chosen by c.records.
  SPEC_FN Target target_of(const Request& request, uint32_t position, Sampled& best) {
    Target target{c.row_of(request, position), request.beta, -kInfinity, c.has(kFilters)};
    if (target.filtered) {
      const Row row = rows_.load(request, position);
      best.top = row.top;
      target.threshold = row.threshold;
      rows_.load_records(row.index);
    }
    full_order();
    return target;
  }
  SPEC_FN NoiseSource source_of(const Request& request, uint32_t position) const {
    return NoiseSource(seeds_.GetValue(request.index),
                       positions_.GetValue(request.index) + depths_.of(request, position));
  }

  // In each tile's record: then who reads them need not know how the row was shared.
  SPEC_FN void leave(const GlobalTensor<float>& records, const Share& share, const Sampled& best) {
    const uint32_t length = (share.end - share.begin) * kRecord;
    for (uint32_t at = 0; at < length; at += kRecord) {
      c.staged.SetValue(at + kSampleTop, best.top);
      c.staged.SetValue(at + kReached, best.reached);
      c.staged.SetValue(at + kSampled, float_of(static_cast<uint32_t>(best.token)));
    }
    const uint64_t first = static_cast<uint64_t>(share.row) * c.num_tiles + share.begin;
    copy_out(records[first * kRecord], c.staged, length);
  }
  SPEC_FN Sampled joined(const GlobalTensor<float>& records, uint32_t row, float beta) {
    copy_in(c.records, records[static_cast<uint64_t>(row) * c.num_tiles * kRecord],
            c.num_tiles * kRecord);
    Sampled best;
    for (uint32_t tile = 0; tile < c.num_tiles; ++tile) {
      Sampled part{rows_.lane(tile, kSampleTop), rows_.lane(tile, kReached),
                   static_cast<int32_t>(bits_of(rows_.lane(tile, kSampled)))};
      if (part.reached == -kInfinity) continue;
      best.raise(part.top, beta);
      part.raise(best.top, beta);
      best.take(part.reached, part.token);
    }
    return best;
  }
  // With filters the scan's records are still being read.
  SPEC_FN const GlobalTensor<float>& surveyed() const {
    return c.has(kFilters) ? c.masses : c.tile_records;
  }

  Context<In>& c;
  Rows<In> rows_;
  Scan<In> scan_;
  Search<In> search_;
  Sampler<In> sampler_;
  Depths depths_;
  GlobalTensor<uint64_t> seeds_, positions_;
  GlobalTensor<float> samples_;
};

}  // namespace spec
