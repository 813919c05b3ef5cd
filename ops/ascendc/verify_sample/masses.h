// Masses of a row's tiles, from which the last token's tile is chosen.
#pragma once
#include "search.h"

namespace spec {

template <typename In>
class Masses {
 public:
  SPEC_FN explicit Masses(Context<In>& context) : c(context), rows_(context), weigh_(context) {}

  // Whether the scan's sums do not tell the masses.
  SPEC_FN bool need_job(const Row& row, const Job& job) const {
    const bool with_draft = job.source == Source::kResidual && c.has(kHasDraftProbs);
    return with_draft || row.threshold > -kInfinity;
  }

  // Weighs this core's share of the rows that have a job.
  SPEC_FN void run() {
    const Split cut = c.split();
    const uint64_t end = cut.first(c.core + 1);
    for (uint64_t at = cut.first(c.core); at < end;) {
      const auto row = static_cast<uint32_t>(at / c.num_tiles);
      const auto begin = static_cast<uint32_t>(at % c.num_tiles);
      const auto stop = least(c.num_tiles, begin + static_cast<uint32_t>(end - at));
      const Job job = load_job(row);
      if (job.source != Source::kNone) {
        const Request request = c.request(c.requests.of_row(row));
        const Row loaded = load_row(request, row - c.row_of(request, 0));
        weigh_tiles(loaded, job, begin, stop);
        for (uint32_t tile = begin; tile < stop; ++tile) {
          c.staged.SetValue((tile - begin) * kRecord, c.values.GetValue(tile));
        }
        copy_out(c.masses[at * kRecord], c.staged, (stop - begin) * kRecord);
      }
      at += stop - begin;
    }
  }

  SPEC_FN Row load_row(const Request& request, uint32_t position) {
    return c.has(kFilters) ? rows_.load(request, position) : rows_.unfiltered(request, position);
  }

  // Fills c.values with the masses of a row's tiles; returns their sum.
  SPEC_FN float collect(const Request& request, uint32_t position, const Row& row, const Job& job) {
    if (!need_job(row, job)) return from_scan(request, position, job);
    if (c.has(kByRequest)) return weigh_all(row, job);
    copy_in(c.records, c.masses[static_cast<uint64_t>(row.index) * c.num_tiles * kRecord],
            c.num_tiles * kRecord);
    for (uint32_t tile = 0; tile < c.num_tiles; ++tile) {
      c.values.SetValue(tile, c.records.GetValue(tile * kRecord));
    }
    return total();
  }

  SPEC_FN float weigh_all(const Row& row, const Job& job) {
    weigh_tiles(row, job, 0, c.num_tiles);
    return total();
  }

 private:
  SPEC_FN Job load_job(uint32_t row) {
    copy_in(c.small, c.jobs[static_cast<uint64_t>(row) * kRecord], kRecord);
    return Job{static_cast<Source>(bits_of(c.small.GetValue(0))), c.small.GetValue(1)};
  }

  SPEC_FN float from_scan(const Request& request, uint32_t position, const Job& job) {
    const Row row = rows_.unfiltered(request, position);
    for (uint32_t tile = 0; tile < c.num_tiles; ++tile) {
      const float draft = job.source == Source::kTarget ? rows_.tile_draft(row, tile) : 0.0f;
      c.values.SetValue(tile, rows_.tile_rest(row, tile) + draft);
    }
    return total();
  }

  // Tiles without a token at the threshold or above are not read.
  SPEC_FN void weigh_tiles(const Row& row, const Job& job, uint32_t begin, uint32_t end) {
    rows_.load_records(row.index);
    for (uint32_t tile = begin; tile < end; ++tile) c.values.SetValue(tile, 0.0f);
    uint32_t tile = next(row, begin, end);
    if (tile < end) c.tiles.fetch(row.index, tile);
    while (tile < end) {
      const uint32_t following = next(row, tile + 1, end);
      if (following < end) c.tiles.fetch(row.index, following);
      const LocalTensor<float> x = c.tiles.take(tile);
      weigh_.weigh(x, row, tile, job);
      c.tiles.release();
      const uint32_t n = round_up(c.tiles.length(tile), kLanes);
      c.values.SetValue(tile, take_sum(c.weights, n, c.cells));
      tile = following;
    }
  }
  SPEC_FN uint32_t next(const Row& row, uint32_t tile, uint32_t end) const {
    if (row.state == RowState::kDead) return tile == 0 ? 0 : end;
    while (tile < end && rows_.lane(tile, kTop) < row.threshold) ++tile;
    return tile;
  }

  SPEC_FN float total() const {
    Sum sum;
    for (uint32_t tile = 0; tile < c.num_tiles; ++tile) sum.add(c.values.GetValue(tile));
    return sum.total;
  }

  Context<In>& c;
  Rows<In> rows_;
  Weigh<In> weigh_;
};

}  // namespace spec
