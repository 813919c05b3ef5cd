"""Errors to put into the real kernels: what to change, and what the emulator must say to it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """One error.

    Attributes:
        name: what is wrong then.
        op: the kernel that is run with it.
        file: path under ``ops/ascendc/``.
        old: text that occurs once in the file.
        new: what replaces it.
        kinds: reports that are right, see ``emulator::Kind``.
        case: which launch shows it, a name in ``test_mutations.CASES``.
    """

    name: str
    op: str
    file: str
    old: str
    new: str
    kinds: frozenset[str]
    case: str


def _mutations(op: str, default_case: str, *rows: tuple[str, ...]) -> list[Mutation]:
    return [
        Mutation(
            name=name,
            op=op,
            file=file,
            old=old,
            new=new,
            kinds=frozenset(kinds.split()),
            case=case[0] if case else default_case,
        )
        for name, file, old, new, kinds, *case in rows
    ]


GREEDY = _mutations(
    "verify_greedy",
    "split",
    (
        "SyncAll forgotten",
        "verify_greedy/verify_greedy.h",
        "      leave_shares();\n      AscendC::SyncAll();\n",
        "      leave_shares();\n",
        "core-race uninitialised",
    ),
    (
        "V_S flag dropped",
        "common/order.h",
        "begin_scalar() { order<HardEvent::V_S>(); }",
        "begin_scalar() {}",
        "unordered",
    ),
    (
        "S_V flag dropped",
        "common/order.h",
        "end_scalar() { order<HardEvent::S_V>(); }",
        "end_scalar() {}",
        "unordered",
    ),
    (
        "WaitFlag dropped",
        "common/order.h",
        "  AscendC::WaitFlag<event>(id);\n",
        "",
        "flag unordered",
    ),
    (
        "raw event id",
        "common/order.h",
        "static_cast<event_t>(::GetTPipePtr()->FetchEventID(event))",
        "EVENT_ID0",
        "flag",
    ),
    (
        "tile one element too long",
        "common/tiles.h",
        "return least(tile_, columns_ - tile * tile_);",
        "return least(tile_, columns_ - tile * tile_ + 1);",
        "gm-bounds",
    ),
    (
        "DataCopy on tails",
        "common/tiles.h",
        "AscendC::DataCopyPad(raw, matrix_[row * stride_ + first_column(tile)], copy, pad);",
        "AscendC::DataCopy(raw, matrix_[row * stride_ + first_column(tile)], n);",
        "alignment",
    ),
    (
        "rows without their stride",
        "common/tiles.h",
        "matrix_[row * stride_ + first_column(tile)]",
        "matrix_[row * columns_ + first_column(tile)]",
        "gm-bounds",
    ),
    (
        "tiles never freed",
        "common/tiles.h",
        "if constexpr (kWide) queue_.FreeTensor(taken_);",
        "",
        "queue-depth queue-leak",
    ),
    (
        "tile freed twice",
        "verify_greedy/verify_greedy.h",
        "      tiles_.release();\n",
        "      tiles_.release();\n      tiles_.release();\n",
        "queue-order",
    ),
    (
        "tile used after it was freed",
        "verify_greedy/verify_greedy.h",
        "      scan_tile(best, x, tile);\n      tiles_.release();\n",
        "      tiles_.release();\n      scan_tile(best, x, tile);\n",
        "use-after-free",
    ),
    (
        "two tiles too many under way",
        "verify_greedy/verify_greedy.h",
        "      if (tile + 1 < end) tiles_.fetch(row, tile + 1);\n",
        "      if (tile + 1 < end) tiles_.fetch(row, tile + 1);\n"
        "      if (tile + 2 < end) tiles_.fetch(row, tile + 2);\n",
        "queue-depth",
    ),
    (
        "scratch of ReduceMax too small",
        "verify_greedy/verify_greedy.h",
        "pipe.InitBuffer(scratch_, kReduceScratch);",
        "pipe.InitBuffer(scratch_, kBlock);",
        "ub-bounds",
    ),
    (
        "shares read without their stride",
        "verify_greedy/verify_greedy.h",
        "static_cast<uint16_t>(count), 8, kBlock - 8, 0, 0)",
        "static_cast<uint16_t>(count), 8, kBlock, 0, 0)",
        "uninitialised gm-bounds",
    ),
    (
        "no padding after the tokens",
        "common/output.h",
        "    for (uint32_t i = count; i < width_; ++i) set(i, -1);\n",
        "",
        "uninitialised",
    ),
    (
        "tokens written without their padding",
        "common/output.h",
        "AscendC::DataCopyExtParams(1, width_ * 4, 0, 0, 0)",
        "AscendC::DataCopyExtParams(1, (width_ - 1) * 4, 0, 0, 0)",
        "not-written",
    ),
    (
        "S_MTE3 flag dropped",
        "common/output.h",
        "    order<HardEvent::S_MTE3>();\n",
        "",
        "unordered",
    ),
    (
        "MTE3_S flag dropped",
        "common/output.h",
        "    order<HardEvent::MTE3_S>();\n",
        "",
        "unordered",
        "one core",
    ),
)

SAMPLE = _mutations(
    "verify_sample",
    "filters",
    (
        "SyncAll forgotten",
        "verify_sample/verify_sample.h",
        "    full_order();\n    AscendC::SyncAll();\n",
        "    full_order();\n",
        "core-race uninitialised",
    ),
    (
        "SyncAll by some cores only",
        "verify_sample/verify_sample.h",
        "    full_order();\n    AscendC::SyncAll();\n",
        "    full_order();\n    if (c.core != 1) AscendC::SyncAll();\n",
        "sync-all core-race uninitialised",
    ),
    (
        "reports not kept twice",
        "verify_sample/search.h",
        "while (step_together(cut, parity)) parity ^= 1;",
        "while (step_together(cut, parity)) {}",
        "core-race",
    ),
    (
        "small copies land in too small a buffer",
        "verify_sample/context.h",
        "pipe.InitBuffer(small_, kSmallBytes);",
        "pipe.InitBuffer(small_, kBlock);",
        "ub-bounds",
    ),
    (
        "buffers beyond the unified buffer",
        "verify_sample/context.h",
        "for (auto& buffer : landing_) pipe.InitBuffer(buffer, kFloats);",
        "for (auto& buffer : landing_) pipe.InitBuffer(buffer, 2 * kFloats);",
        "ub-overflow",
    ),
    (
        "records not initialised",
        "verify_sample/context.h",
        "    AscendC::Duplicate(records, 0.0f, kRecordBytes / 4);\n",
        "",
        "uninitialised",
    ),
    (
        "sums not initialised",
        "verify_sample/pass.h",
        "    AscendC::Duplicate(c.sums, 0.0f, static_cast<int32_t>(2 * kPivots * kLanes));\n",
        "",
        "uninitialised",
    ),
    (
        "V_MTE2 flag dropped",
        "verify_sample/weigh.h",
        "    order<HardEvent::V_MTE2>();\n",
        "",
        "unordered",
        "draft probs",
    ),
    (
        "MTE2_V flag dropped",
        "verify_sample/weigh.h",
        "    order<HardEvent::MTE2_V>();\n",
        "",
        "unordered",
        "draft probs",
    ),
    (
        "draft's rows without their stride",
        "verify_sample/weigh.h",
        "row.draft_row * c.args.draft_stride + c.tiles.first_column(tile)",
        "row.draft_row * c.args.vocab_size + c.tiles.first_column(tile)",
        "gm-bounds",
        "draft probs",
    ),
    (
        "comparison of part of a repeat",
        "verify_sample/pass.h",
        "const uint32_t whole = round_up(n, kLanes);",
        "const uint32_t whole = n;",
        "alignment",
    ),
    (
        "masses of tiles that other cores weigh",
        "verify_sample/masses.h",
        "copy_out(c.masses[at * kRecord], c.staged, (stop - begin) * kRecord);",
        "copy_out(c.masses[at * kRecord], c.staged, (stop - begin + 1) * kRecord);",
        "core-race gm-bounds",
    ),
    (
        "ring used again too early",
        "verify_sample/scan.h",
        "    if (ring_ == places) {\n      order<HardEvent::MTE3_V>();\n",
        "    if (ring_ == places) {\n",
        "unordered",
        "many tiles",
    ),
    (
        "workspace too small",
        "verify_sample/arguments.h",
        "lists = parts.take(shared ? 4ull * cores * kTile * 4 : 0);",
        "lists = parts.take(shared ? 64 : 0);",
        "gm-bounds",
    ),
    (
        "V_MTE3 flag dropped",
        "verify_sample/scan.h",
        "    order<HardEvent::V_MTE3>();\n",
        "",
        "unordered",
    ),
)

SEEDED = _mutations(
    "verify_seeded",
    "seeded",
    (
        "SyncAll forgotten",
        "verify_seeded/race.h",
        "    full_order();\n    AscendC::SyncAll();\n",
        "    full_order();\n",
        "core-race uninitialised",
    ),
    (
        "samples of tiles that other cores have",
        "verify_seeded/race.h",
        "const uint32_t length = (share.end - share.begin) * kRecord;",
        "const uint32_t length = (share.end - share.begin + 1) * kRecord;",
        "core-race gm-bounds",
    ),
    (
        "survey's records overwritten",
        "verify_seeded/race.h",
        "      leave(samples_, share, best);\n",
        "      leave(surveyed(), share, best);\n",
        "core-race uninitialised",
    ),
    (
        "least numbers kept where others are",
        "verify_seeded/noise.h",
        "static_cast<uint64_t>(c.num_tiles) * (c.args.tile / kGroup)",
        "c.args.vocab_size / kGroup",
        "core-race uninitialised gm-bounds unordered",
    ),
    (
        "least numbers kept before they are made",
        "verify_seeded/noise.h",
        "    order<HardEvent::V_MTE3>();\n",
        "",
        "unordered",
    ),
    (
        "no order within a product",
        "verify_seeded/philox.h",
        "    times(carry_, high, low_factor);\n    vector_order();\n",
        "    times(carry_, high, low_factor);\n",
        "unordered",
        "seeded in no order",
    ),
    (
        "comparison of integers by order",
        "verify_seeded/noise.h",
        "AscendC::CompareScalar(scratch.mask, series, 0.0f, AscendC::CMPMODE::GE, n);",
        "AscendC::CompareScalar(scratch.mask, words, 0, AscendC::CMPMODE::GE, n);",
        "unsupported",
    ),
    (
        "least numbers of part of a repeat",
        "verify_seeded/noise.h",
        "const uint32_t n = round_up(count, kLanes);",
        "const uint32_t n = count;",
        "alignment",
    ),
    (
        "last group not filled up",
        "verify_seeded/sampler.h",
        "    if (filled < groups * kGroup) {\n",
        "    if (false) {\n",
        "uninitialised",
    ),
    (
        "candidates judged before the scalar unit is done",
        "verify_seeded/candidates.h",
        "    end_scalar();\n    exponential_numbers(",
        "    exponential_numbers(",
        "unordered",
    ),
    (
        "tokens of a group read before they are compared",
        "verify_seeded/sampler.h",
        "needed, AscendC::CMPMODE::GE, kGroup);\n    begin_scalar();\n",
        "needed, AscendC::CMPMODE::GE, kGroup);\n",
        "unordered",
    ),
)

TREE = _mutations(
    "verify_tree",
    "tree",
    (
        "path written before the scalar unit is done",
        "verify_tree/verify_tree.h",
        "    order<HardEvent::S_MTE3>();\n",
        "",
        "unordered",
    ),
    (
        "path not padded",
        "verify_tree/verify_tree.h",
        "    path_.pad(count);\n",
        "",
        "uninitialised",
    ),
    (
        "parents of another request",
        "verify_tree/tree.h",
        "parents_.GetValue(request.first_draft + node)",
        "parents_.GetValue(request.first_draft + request.num_drafts + node)",
        "gm-bounds",
    ),
)

GRAMMAR = _mutations(
    "grammar_mask",
    "masks",
    (
        "too few words of the mask",
        "grammar_mask/grammar_mask.h",
        "(tiles_.length(tile) + 31) / 32",
        "tiles_.length(tile) / 32",
        "uninitialised",
    ),
    (
        "one logit too many written",
        "grammar_mask/grammar_mask.h",
        "AscendC::DataCopyExtParams(1, n * sizeof(In), 0, 0, 0)",
        "AscendC::DataCopyExtParams(1, (n + 1) * sizeof(In), 0, 0, 0)",
        "gm-bounds uninitialised core-race",
    ),
    (
        "rows without their stride",
        "grammar_mask/grammar_mask.h",
        "logits_[row * args_.row_stride + tiles_.first_column(tile)]",
        "logits_[row * args_.vocab_size + tiles_.first_column(tile)]",
        "gm-bounds core-race",
    ),
    (
        "cores' shares overlap",
        "grammar_mask/grammar_mask.h",
        "const uint64_t end = cut.first(core + 1);",
        "const uint64_t end = cut.first(core + 1) + (core + 1 < cores ? 1 : 0);",
        "core-race",
    ),
    (
        "result never freed",
        "grammar_mask/grammar_mask.h",
        "    masked_.FreeTensor(masked);\n",
        "",
        "queue-depth queue-leak",
    ),
    (
        "result not queued",
        "grammar_mask/grammar_mask.h",
        "    masked_.EnQue(masked);\n    masked = masked_.template DeQue<In>();\n",
        "",
        "unordered",
    ),
    (
        "mask freed before it is used",
        "grammar_mask/grammar_mask.h",
        "    bits_.EnQue(bits);\n",
        "    bits_.EnQue(bits);\n    bits_.FreeTensor(bits);\n",
        "queue-order",
    ),
    (
        "words read without their stride",
        "grammar_mask/grammar_mask.h",
        "at / tiles_.count() * args_.num_words",
        "(at / tiles_.count() + 1) * args_.num_words",
        "gm-bounds",
    ),
)

MUTATIONS = [*GREEDY, *SAMPLE, *SEEDED, *TREE, *GRAMMAR]
