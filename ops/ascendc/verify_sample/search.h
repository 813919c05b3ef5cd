// Phase 2: thresholds of filtered rows. A row within one core's share is searched there; a row that
// several cores share is searched by all of them in step, each coming to the same conclusions.
#pragma once
#include "bracket.h"

namespace spec {

template <typename In>
class Search {
 public:
  SPEC_FN explicit Search(Context<In>& context) : c(context), rows_(context), pass_(context) {}

  // Of a row that this core has to itself.
  SPEC_FN Row filtered(const Request& request, uint32_t position) {
    BracketSearch<In> search;
    search.begin(c, request, rows_.unfiltered(request, position));
    Totals totals;
    while (!search.done()) {
      rows_.load_records(search.row.index);
      pass_.run(search.row, search.bracket, search.pivots, 0, c.num_tiles, totals);
      search.advance(c, totals);
    }
    return search.row;
  }

  // Of all rows of this core's share; leaves their records. All cores call it, and it ends with
  // the cores in step.
  SPEC_FN void run() {
    const Split cut = c.split();
    const uint64_t end = cut.first(c.core + 1);
    uint64_t at = cut.first(c.core);
    while (at < end) {
      const auto row = static_cast<uint32_t>(at / c.num_tiles);
      const Request request = c.request(c.requests.of_row(row));
      const uint32_t position = row - c.row_of(request, 0);
      if (!request.greedy) start(cut, request, position);
      at = static_cast<uint64_t>(row + 1) * c.num_tiles;
    }
    uint32_t parity = 0;
    while (step_together(cut, parity)) parity ^= 1;
  }

 private:
  // A core shares at most two rows: one that begins before its part, one that ends after it.
  static constexpr uint32_t kFromBefore = 0, kToNext = 1;

  SPEC_FN void start(const Split& cut, const Request& request, uint32_t position) {
    const uint32_t row = c.row_of(request, position);
    const uint32_t first = cut.first_core(row);
    if (first == cut.last_core(row)) {
      rows_.store(filtered(request, position));
      return;
    }
    const uint32_t which = first == c.core ? kToNext : kFromBefore;
    shared_[which].begin(c, request, rows_.unfiltered(request, position));
    active_[which] = !shared_[which].done();
    if (!active_[which] && which == kToNext) rows_.store(shared_[which].row);
  }

  // One pass over each shared row. Returns whether any core still had a row to look at. The cores
  // learn that one pass later, so the last pass does nothing.
  SPEC_FN bool step_together(const Split& cut, uint32_t parity) {
    for (uint32_t which = 0; which < 2; ++which) {
      if (active_[which]) look(cut, which, parity);
    }
    for (uint32_t i = 0; i < kRecord; ++i) {
      c.staged.SetValue(i, active_[0] || active_[1] ? 1.0f : 0.0f);
    }
    copy_out(c.active[(parity * c.cores + c.core) * kRecord], c.staged, kRecord);
    full_order();
    AscendC::SyncAll();
    const bool any = any_active(parity);
    for (uint32_t which = 0; which < 2; ++which) {
      if (!active_[which]) continue;
      conclude(cut, which, parity);
      active_[which] = !shared_[which].done();
      if (!active_[which] && which == kToNext) rows_.store(shared_[which].row);
    }
    return any;
  }

  SPEC_FN bool any_active(uint32_t parity) {
    copy_in(c.small, c.active[parity * c.cores * kRecord], c.cores * kRecord);
    for (uint32_t core = 0; core < c.cores; ++core) {
      if (c.small.GetValue(core * kRecord) != 0.0f) return true;
    }
    return false;
  }

  SPEC_FN uint32_t place(uint32_t parity, uint32_t core, uint32_t which) const {
    return 2 * (parity * c.cores + core) + which;
  }

  // ProbeTimer at this core's part of a shared row and reports.
  SPEC_FN void look(const Split& cut, uint32_t which, uint32_t parity) {
    const BracketSearch<In>& search = shared_[which];
    const uint64_t start = static_cast<uint64_t>(search.row.index) * c.num_tiles;
    const uint64_t from = cut.first(c.core), to = cut.first(c.core + 1);
    const auto begin = static_cast<uint32_t>(from > start ? from - start : 0);
    const auto end = static_cast<uint32_t>(to < start + c.num_tiles ? to - start : c.num_tiles);
    Totals totals;
    rows_.load_records(search.row.index);
    pass_.run(search.row, search.bracket, search.pivots, begin, end, totals);
    for (uint32_t j = 0; j < kPivots; ++j) {
      c.staged.SetValue(j, totals.count[j]);
      c.staged.SetValue(kPivots + j, totals.mass[j]);
    }
    c.staged.SetValue(2 * kPivots, static_cast<float>(totals.listed));
    c.staged.SetValue(2 * kPivots + 1, totals.whole ? 1.0f : 0.0f);
    const uint32_t here = place(parity, c.core, which);
    copy_out(c.reports[here * kReport], c.staged, kReport);
    if (!totals.whole || totals.listed == 0) return;
    order<HardEvent::V_MTE3>();
    AscendC::DataCopyPad(c.lists[static_cast<uint64_t>(here) * kTile], c.list,
                         AscendC::DataCopyExtParams(1, totals.listed * 4, 0, 0, 0));
    order<HardEvent::MTE3_V>();
  }

  // Adds the reports up, gets the list if it fits, and decides.
  SPEC_FN void conclude(const Split& cut, uint32_t which, uint32_t parity) {
    const uint32_t first = cut.first_core(shared_[which].row.index);
    const uint32_t last = cut.last_core(shared_[which].row.index);
    Totals totals;
    load_reports(first, last, parity);
    add_reports(last - first + 1, totals);
    if (totals.whole) gather_lists(first, last, parity);
    shared_[which].advance(c, totals);
  }

  SPEC_FN void load_reports(uint32_t first, uint32_t last, uint32_t parity) {
    order<HardEvent::V_MTE2>();
    order<HardEvent::S_MTE2>();
    const AscendC::DataCopyPadExtParams<float> no_pad(false, 0, 0, 0.0f);
    AscendC::DataCopyPad(c.work, c.reports[place(parity, first, kToNext) * kReport],
                         AscendC::DataCopyExtParams(1, kReport * 4, 0, 0, 0), no_pad);
    const auto others = static_cast<uint16_t>(last - first);
    const AscendC::DataCopyExtParams copy(others, kReport * 4, kReport * 4, 0, 0);
    AscendC::DataCopyPad(c.work[kReport],
                         c.reports[place(parity, first + 1, kFromBefore) * kReport], copy, no_pad);
    order<HardEvent::MTE2_S>();
    order<HardEvent::MTE2_V>();
  }

  SPEC_FN void add_reports(uint32_t num_reports, Totals& totals) {
    for (uint32_t j = 0; j < kPivots; ++j) {
      Sum mass;
      totals.count[j] = 0.0f;
      for (uint32_t i = 0; i < num_reports; ++i) {
        totals.count[j] += c.work.GetValue(i * kReport + j);
        mass.add(c.work.GetValue(i * kReport + kPivots + j));
      }
      totals.mass[j] = mass.total;
    }
    totals.listed = 0;
    totals.whole = true;
    for (uint32_t i = 0; i < num_reports; ++i) {
      lengths_[i] = static_cast<uint32_t>(c.work.GetValue(i * kReport + 2 * kPivots));
      totals.listed += lengths_[i];
      if (c.work.GetValue(i * kReport + 2 * kPivots + 1) == 0.0f) totals.whole = false;
    }
    if (totals.listed > kListed) totals.whole = false;
    end_scalar();
  }

  SPEC_FN void gather_lists(uint32_t first, uint32_t last, uint32_t parity) {
    order<HardEvent::V_MTE2>();
    uint32_t at = 0;
    for (uint32_t core = first; core <= last; ++core) {
      const uint32_t length = lengths_[core - first];
      if (length == 0) continue;
      const uint32_t from = place(parity, core, core == first ? kToNext : kFromBefore);
      AscendC::DataCopyPad(c.list[at], c.lists[static_cast<uint64_t>(from) * kTile],
                           AscendC::DataCopyExtParams(1, length * 4, 0, 0, 0),
                           AscendC::DataCopyPadExtParams<float>(false, 0, 0, 0.0f));
      at += length;
    }
    order<HardEvent::MTE2_V>();
  }

  Context<In>& c;
  Rows<In> rows_;
  Pass<In> pass_;
  BracketSearch<In> shared_[2];
  bool active_[2] = {false, false};
  uint32_t lengths_[kMaxCores];
};

}  // namespace spec
