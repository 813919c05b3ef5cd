// verify_tree: one launch from logits to tokens. All rows are sampled as by verify_seeded, or, where
// a core has whole requests, those that its walk comes to.
#pragma once
#include "../verify_seeded/race.h"
#include "tree.h"

namespace spec {

template <typename In>
class VerifyTree {
 public:
  SPEC_FN VerifyTree(Context<In>& context, Address seeds, Address positions, Address parents)
      : c(context), tree_(parents), race_(context, seeds, positions, tree_) {}

  SPEC_FN void init(AscendC::TPipe& pipe, Address paths) {
    path_.init(pipe, paths, c.args.max_draft_len + 1);
  }

  SPEC_FN void run() {
    race_.run();
    for (uint32_t i = c.core; i < c.args.num_reqs; i += c.cores) verify(c.request(i));
  }

 private:
  SPEC_FN void verify(const Request& request) {
    uint32_t row = 0, count = 0;
    do {
      const int32_t token = race_.token_of(request, row);
      c.output.set(count, token);
      path_.set(count, static_cast<int32_t>(row));
      ++count;
      row = tree_.child_with(c, request, row, token);
    } while (row != 0);
    c.output.write(request.index, count);
    path_.pad(count);
    order<HardEvent::S_MTE3>();
    path_.copy_to(request.index);
    order<HardEvent::MTE3_S>();
  }

  static_assert(Context<In>::kBytes + (kMaxDrafts + 1) * 4 <= kUsable,
                "verify_tree's buffers do not fit: lower kTile, kMaxTiles or kMaxDrafts");

  Context<In>& c;
  Tree tree_;
  Race<In, Tree> race_;
  PaddedRow path_;
};

}  // namespace spec
