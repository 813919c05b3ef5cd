// verify_seeded: one launch from logits to tokens. README.md tells the phases.
//
// Rows are cut, scanned and filtered as in verify_sample, whose context and search it uses.
#pragma once
#include "../verify_sample/search.h"
#include "sampler.h"

namespace spec {

template <typename In>
class VerifySeeded {
 public:
  SPEC_FN VerifySeeded(Context<In>& context, Address seeds, Address positions)
      : c(context), rows_(context), scan_(context), search_(context), sampler_(context) {
    seeds_.SetGlobalBuffer(reinterpret_cast<__gm__ uint64_t*>(seeds));
    positions_.SetGlobalBuffer(reinterpret_cast<__gm__ uint64_t*>(positions));
  }

  SPEC_FN void run() {
    if (!c.has(kByRequest)) {
      if (c.has(kFilters)) {
        scan_.run();
        meet();
        search_.run();
      }
      sample_share();
      meet();
    }
    for (uint32_t i = c.core; i < c.args.num_reqs; i += c.cores) verify(c.request(i));
  }

 private:
  SPEC_FN void meet() {
    full_order();
    AscendC::SyncAll();
  }

  // Leaves a sample of this core's share of each row.
  SPEC_FN void sample_share() {
    const Split cut = c.split();
    const uint64_t end = cut.first(c.core + 1);
    for (uint64_t at = cut.first(c.core); at < end;) {
      const auto row = static_cast<uint32_t>(at / c.num_tiles);
      const auto begin = static_cast<uint32_t>(at % c.num_tiles);
      const auto stop = least(c.num_tiles, begin + static_cast<uint32_t>(end - at));
      const Request request = c.request(c.requests.of_row(row));
      const uint32_t position = row - c.row_of(request, 0);
      if (!request.greedy) {
        leave(row, begin, stop, sample(request, position, begin, stop));
      } else if (!c.has(kFilters)) {
        scan_.scan(request, position, begin, stop);
      }
      at += stop - begin;
    }
  }

  SPEC_FN Sampled sample(const Request& request, uint32_t position, uint32_t begin, uint32_t end) {
    Sampled best;
    Target target{c.row_of(request, position), request.beta, -kInfinity, c.has(kFilters)};
    if (target.filtered) {
      const Row row = rows_.load(request, position);
      best.top = row.top;
      target.threshold = row.threshold;
      rows_.load_records(row.index);
    }
    const NoiseSource source(seeds_.GetValue(request.index),
                        positions_.GetValue(request.index) + position);
    full_order();
    sampler_.sample(target, source, begin, end, best);
    full_order();
    return best;
  }

  // In each tile's record: then a row's core need not know how it was shared.
  SPEC_FN void leave(uint32_t row, uint32_t begin, uint32_t end, const Sampled& best) {
    for (uint32_t at = 0; at < (end - begin) * kRecord; at += kRecord) {
      c.staged.SetValue(at, best.top);
      c.staged.SetValue(at + 1, best.reached);
      c.staged.SetValue(at + 2, float_of(static_cast<uint32_t>(best.token)));
    }
    copy_out(records()[(static_cast<uint64_t>(row) * c.num_tiles + begin) * kRecord], c.staged,
             (end - begin) * kRecord);
  }
  SPEC_FN Sampled joined(uint32_t row, float beta) {
    copy_in(c.records, records()[static_cast<uint64_t>(row) * c.num_tiles * kRecord],
            c.num_tiles * kRecord);
    Sampled best;
    for (uint32_t tile = 0; tile < c.num_tiles; ++tile) {
      Sampled part{rows_.lane(tile, 0), rows_.lane(tile, 1),
                   static_cast<int32_t>(bits_of(rows_.lane(tile, 2)))};
      if (part.reached == -kInfinity) continue;
      best.raise(part.top, beta);
      part.raise(best.top, beta);
      best.take(part.reached, part.token);
    }
    return best;
  }
  // With filters the scan's records are still being read.
  SPEC_FN const GlobalTensor<float>& records() const {
    return c.has(kFilters) ? c.masses : c.tile_records;
  }

  SPEC_FN void verify(const Request& request) {
    uint32_t position = 0;
    for (;; ++position) {
      const int32_t token = token_of(request, position);
      c.output.set(position, token);
      if (position == request.num_drafts || c.draft_at(request, position) != token) break;
    }
    c.output.write(request.index, position + 1);
  }

  SPEC_FN int32_t token_of(const Request& request, uint32_t position) {
    const uint32_t row = c.row_of(request, position);
    if (!c.has(kByRequest)) {
      return request.greedy ? rows_.argmax(row) : joined(row, request.beta).token;
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
    return sample(request, position, 0, c.num_tiles).token;
  }

  Context<In>& c;
  Rows<In> rows_;
  Scan<In> scan_;
  Search<In> search_;
  Sampler<In> sampler_;
  GlobalTensor<uint64_t> seeds_, positions_;
};

}  // namespace spec
