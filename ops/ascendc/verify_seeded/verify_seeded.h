// verify_seeded: one launch from logits to tokens. README.md tells the phases.
#pragma once
#include "race.h"

namespace spec {

// Each row is for the position after that of the row before it.
struct ChainDepths {
  SPEC_FN uint32_t of(const Request&, uint32_t position) const { return position; }
};

template <typename In>
class VerifySeeded {
 public:
  SPEC_FN VerifySeeded(Context<In>& context, Address seeds, Address positions)
      : c(context), race_(context, seeds, positions, ChainDepths{}) {}

  SPEC_FN void run() {
    race_.run();
    for (uint32_t i = c.core; i < c.args.num_reqs; i += c.cores) verify(c.request(i));
  }

 private:
  SPEC_FN void verify(const Request& request) {
    uint32_t position = 0;
    for (;; ++position) {
      const int32_t token = race_.token_of(request, position);
      c.output.set(position, token);
      if (position == request.num_drafts || c.draft_at(request, position) != token) break;
    }
    c.output.write(request.index, position + 1);
  }

  Context<In>& c;
  Race<In, ChainDepths> race_;
};

}  // namespace spec
