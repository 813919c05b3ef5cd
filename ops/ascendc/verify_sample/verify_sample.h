// verify_sample: one launch from logits to tokens. README.md tells the phases.
#pragma once
#include "decide.h"
#include "draw.h"

namespace spec {

template <typename In>
class VerifySample {
 public:
  SPEC_FN explicit VerifySample(Context<In>& context)
      : c(context), supply_(context), decide_(supply_), masses_(context), draw_(context) {}

  SPEC_FN void run() {
    if (!c.has(kByRequest)) {
      Scan<In>(c).run();
      meet();
      if (c.has(kFilters)) Search<In>(c).run();
      if (c.has(kFilters | kHasDraftProbs)) {
        for (uint32_t i = c.core; i < c.args.num_reqs; i += c.cores) post(c.request(i));
        meet();
        masses_.run();
        meet();
      }
    }
    for (uint32_t i = c.core; i < c.args.num_reqs; i += c.cores) finish(c.request(i));
  }

 private:
  SPEC_FN void meet() {
    full_order();
    AscendC::SyncAll();
  }

  // Tells all cores which rows of a request they have to weigh, and how.
  SPEC_FN void post(const Request& request) {
    const uint32_t rows = request.num_drafts + 1;
    const Decision decision = decide_.decide(request);
    for (uint32_t position = 0; position < rows; ++position) {
      Job job{Source::kNone, 0.0f};
      if (decision.token < 0 && position == decision.accepted) {
        job = decision.job;
      } else if (is_open(decision, position)) {
        job = Job{Source::kResidual, c.chances.GetValue(position)};
      }
      if (job.source != Source::kNone && !masses_.need_job(supply_.row(request, position), job)) {
        job.source = Source::kNone;
      }
      c.staged.SetValue(position * kRecord, float_of(static_cast<uint32_t>(job.source)));
      c.staged.SetValue(position * kRecord + 1, job.weight);
    }
    copy_out(c.jobs[static_cast<uint64_t>(c.row_of(request, 0)) * kRecord], c.staged,
             rows * kRecord);
  }

  SPEC_FN bool is_open(const Decision& decision, uint32_t position) const {
    return position > decision.accepted && position <= decision.open &&
           c.chances.GetValue(position) > 0.0f;
  }

  SPEC_FN void finish(const Request& request) {
    Decision decision = decide_.decide(request);
    settle(request, decision);
    int32_t token = decision.token;
    if (token < 0) {
      const Row row = supply_.row(request, decision.accepted);
      token = draw_.draw(request, decision.accepted, row, decision.job);
    }
    for (uint32_t i = 0; i < decision.accepted; ++i) c.output.set(i, c.draft_at(request, i));
    c.output.set(decision.accepted, token);
    c.output.write(request.index, decision.accepted + 1);
  }

  // ProbeTimer at the residuals of positions that may be accepted, from the last one backwards
  // (docs/block_rule.md, lemma 3).
  SPEC_FN void settle(const Request& request, Decision& decision) {
    for (uint32_t i = decision.open; i > decision.accepted; --i) {
      if (!is_open(decision, i)) continue;
      const Job job{Source::kResidual, c.chances.GetValue(i)};
      const Row row = supply_.row(request, i);
      const float remains = masses_.collect(request, i, row, job);
      if (decide_.uniform(request, i - 1) < decide_.chance(job.weight, remains)) {
        decision.accepted = i;
        decision.job = job;
        return;
      }
    }
  }

  Context<In>& c;
  Supply<In> supply_;
  Decide<In> decide_;
  Masses<In> masses_;
  Draw<In> draw_;
};

}  // namespace spec
