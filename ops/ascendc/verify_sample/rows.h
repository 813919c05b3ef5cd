// A row's distribution from its tiles' records, and the records of rows that the search leaves.
#pragma once
#include "scan.h"

namespace spec {

template <typename In>
class Rows {
 public:
  SPEC_FN explicit Rows(Context<In>& context) : c(context) {}

  SPEC_FN void load_records(uint32_t row) {
    copy_in(c.records, c.tile_records[static_cast<uint64_t>(row) * c.num_tiles * kRecord],
            c.num_tiles * kRecord);
  }

  // Before filters. Leaves the tiles' records and their factors,
  // exp((top of the tile - top) * beta).
  SPEC_FN Row unfiltered(const Request& request, uint32_t position) {
    Row row;
    row.index = c.row_of(request, position);
    row.draft_row = request.first_draft + position;
    row.draft = c.draft_at(request, position);
    row.beta = request.beta;
    row.threshold = -kInfinity;
    load_records(row.index);
    row.top = -kInfinity;
    row.draft_logit = -kInfinity;
    for (uint32_t tile = 0; tile < c.num_tiles; ++tile) {
      row.top = larger(row.top, lane(tile, kTop));
      row.draft_logit = larger(row.draft_logit, lane(tile, kDraftLogit));
    }
    row.state = row.top == kInfinity    ? RowState::kInfinite
                : row.top == -kInfinity ? RowState::kDead
                                        : RowState::kNormal;
    find_factors(row);
    Sum rest;
    row.draft_weight = 0.0f;
    for (uint32_t tile = 0; tile < c.num_tiles; ++tile) {
      rest.add(tile_rest(row, tile));
      row.draft_weight += tile_draft(row, tile);
    }
    row.rest = rest.total;
    return row;
  }

  // A tile's part of an unfiltered row; of the row that unfiltered() has returned last.
  SPEC_FN float tile_rest(const Row& row, uint32_t tile) const {
    if (row.state == RowState::kDead) return tile == 0 && row.draft != 0 ? 1.0f : 0.0f;
    return lane(tile, kSum) * factor(row, tile);
  }
  SPEC_FN float tile_draft(const Row& row, uint32_t tile) const {
    if (row.state == RowState::kDead) return tile == 0 && row.draft == 0 ? 1.0f : 0.0f;
    return lane(tile, kDraftWeight) * factor(row, tile);
  }

  SPEC_FN float lane(uint32_t tile, uint32_t index) const {
    return c.records.GetValue(tile * kRecord + index);
  }

  // The argmax of a greedy request's row.
  SPEC_FN int32_t argmax(uint32_t row) {
    load_records(row);
    float best = -kInfinity;
    uint32_t token = 0;
    for (uint32_t tile = 0; tile < c.num_tiles; ++tile) {
      if (!(lane(tile, kTop) > best)) continue;
      best = lane(tile, kTop);
      token = bits_of(lane(tile, kToken));
    }
    return static_cast<int32_t>(token);
  }

  SPEC_FN void store(const Row& row) {
    const float state = float_of(static_cast<uint32_t>(row.state));
    const float fields[kRecord] = {row.top,       row.rest, row.draft_weight, row.draft_logit,
                                   row.threshold, state,    0.0f,             0.0f};
    for (uint32_t i = 0; i < kRecord; ++i) c.staged.SetValue(i, fields[i]);
    copy_out(c.row_records[static_cast<uint64_t>(row.index) * kRecord], c.staged, kRecord);
  }

  SPEC_FN Row load(const Request& request, uint32_t position) {
    Row row;
    row.index = c.row_of(request, position);
    row.draft_row = request.first_draft + position;
    row.draft = c.draft_at(request, position);
    row.beta = request.beta;
    copy_in(c.small, c.row_records[static_cast<uint64_t>(row.index) * kRecord], kRecord);
    row.top = c.small.GetValue(0);
    row.rest = c.small.GetValue(1);
    row.draft_weight = c.small.GetValue(2);
    row.draft_logit = c.small.GetValue(3);
    row.threshold = c.small.GetValue(4);
    row.state = static_cast<RowState>(bits_of(c.small.GetValue(5)));
    return row;
  }

 private:
  static SPEC_FN float larger(float a, float b) { return a > b ? a : b; }

  SPEC_FN void find_factors(const Row& row) {
    if (row.state != RowState::kNormal) return;
    end_scalar();
    exponentials(c.factors, c.records, row.top, row.beta, c.num_tiles * kRecord);
    begin_scalar();
  }
  SPEC_FN float factor(const Row& row, uint32_t tile) const {
    if (row.state == RowState::kInfinite) return lane(tile, kTop) == kInfinity ? 1.0f : 0.0f;
    return c.factors.GetValue(tile * kRecord);
  }

  Context<In>& c;
};

}  // namespace spec
