"""Errors to put into our code for the NPU: what to change, and which check has to notice it.

Each is an error that was made somewhere, in vllm-ascend or here, or nearly. The check is one that
``make test`` runs. ``test_mutations.py`` runs it with the error; docs/ascend.md shows the list.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "vllm_ascend_spec"
SOURCES = Path(__file__).parents[2] / PACKAGE
LOOP = "methods/loops/ascend/loop.py"
METADATA = "methods/loops/ascend/metadata.py"
REJECTED = "methods/loops/ascend/rejected.py"
GRAPHS = "methods/loops/ascend/graphs.py"
TREES, JOINED = "worker/npu_trees.py", "worker/npu_tree_attention.py"
# What a check says that compares drafts, and one whose engine has ended.
DRAFTS = "other drafts|drafted .* times"
ENDED = "(?s)the engine ended with"
ANSWERS = "answers that differ"


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """One error.

    Attributes:
        file: path in the package.
        old: text that occurs once in the file.
        new: what replaces it.
        check: a key of ``test_mutations.CHECKS``.
        case: what the check is called with.
        said: regular expression of what the check says.
    """

    file: str
    old: str
    new: str
    check: str = "test_same_drafts.py"
    case: str
    said: str = DRAFTS

    def text(self) -> str:
        """Return the source with the error.

        Raises:
            ValueError: the text to replace is not there once.
        """
        source = (SOURCES / self.file).read_text()
        if source.count(self.old) != 1:
            raise ValueError(f"{self.file}: {self.old!r} has to occur once")
        return source.replace(self.old, self.new)

    def put_in(self) -> None:
        """Import the module with the error, in a process that has not imported it."""
        name = ".".join((PACKAGE, *Path(self.file).with_suffix("").parts))
        if name in sys.modules:
            raise RuntimeError(f"{name} has been imported")
        spec = importlib.util.find_spec(name)
        assert spec is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        exec(compile(self.text(), str(spec.origin), "exec"), vars(module))


MUTATIONS: dict[str, Mutation] = {
    "KV lengths of later draft steps in reverse order": Mutation(
        file=REJECTED,
        old="torch.minimum(lengths[:num_reqs], known.to(lengths.dtype))",
        new="torch.minimum(lengths[:num_reqs], known.to(lengths.dtype)).flip(0)",
        case="eagle-full_decode_only",
    ),
    "rejected tokens left in what later draft steps read": Mutation(
        file=REJECTED,
        old="if proposer.use_async_scheduling or get_pp_group().world_size > 1:",
        new="if True:",
        case="eagle-eager",
    ),
    "later draft steps write to the slots of the step before": Mutation(
        file=METADATA,
        old="        if self.uses_own_loop and draft_index > 0:\n",
        new="        if self.uses_own_loop and draft_index > 0:\n"
        "            stale = self.slot_mapping_group[draft_index - 1]\n"
        "            metadata.slot_mapping.copy_(stale)\n",
        case="eagle-full_decode_only",
    ),
    "rows of padding write to a request's slot": Mutation(
        file=METADATA,
        old="        if self.uses_own_loop and draft_index > 0:\n",
        new="        if self.uses_own_loop and draft_index > 0:\n"
        "            slots = metadata.slot_mapping\n"
        "            slots[metadata.num_actual_tokens : metadata.num_reqs] = slots[0] - 1\n",
        case="eagle-full_decode_only",
    ),
    "later draft steps read the block table one row down": Mutation(
        file=METADATA,
        old="metadata.block_table_tensor = metadata.block_table_tensor[:num_rows]",
        new="metadata.block_table_tensor = metadata.block_table_tensor.roll(1, 0)[:num_rows]",
        case="eagle-eager",
    ),
    "later draft steps begin a row late in what the host says": Mutation(
        file=METADATA,
        old="torch.arange(num_rows + 1, dtype=torch.int32)",
        new="(torch.arange(num_rows + 1, dtype=torch.int32) + 1).clamp(max=num_rows)",
        case="eagle-eager",
    ),
    "the token before the last one is drafted from": Mutation(
        file=LOOP,
        old="drafts = [self.pick(last[rows], sampler)]",
        new="drafts = [self.pick(last[(rows - 1).clamp(min=0)], sampler)]",
        case="eagle-eager",
    ),
    "later draft steps start from the hidden states of another request": Mutation(
        file=LOOP,
        old="self._later_steps(later, hidden[rows], positions, drafts, sampler)",
        new="self._later_steps(later, hidden[rows.roll(1)], positions, drafts, sampler)",
        case="eagle-eager",
    ),
    "later draft steps skip a position": Mutation(
        file=LOOP,
        old="positions + (each.depth + 1)",
        new="positions + 2 * (each.depth + 1)",
        case="eagle-eager",
    ),
    "rows of the draft keep the token of the step before": Mutation(
        file=LOOP,
        old="tokens = self.read_by(each, drafts)",
        new="tokens = drafts[0][0]",
        case="eagle-eager",
    ),
    "rows of the draft keep the hidden states of the step before": Mutation(
        file=LOOP,
        old="self.hidden_states[:num_reqs] = states[each.before]\n",
        new="self.hidden_states[:num_reqs] = self.hidden_states[:num_reqs]\n",
        case="eagle-eager",
    ),
    "the draft's cache misses what was written while nothing was drafted": Mutation(
        file=LOOP,
        old="if has_drafts or not self.uses_own_loop:",
        new="if True:",
        case="limit",
    ),
    "a draft model's lengths in a graph are one short": Mutation(
        file="patches/npu_draft_model_lengths.py",
        old="torch.where(fitted > 0, fitted + self.net_num_new_slots_per_request, fitted)",
        new="fitted",
        case="draft_model-full_decode_only",
    ),
    "a head reads the last token of a prompt behind a piece of it": Mutation(
        file="patches/prompt_chunk_end.py",
        old="read + 1, ends",
        new="ends[: batch.num_reqs], ends",
        case="eagle-chunked",
    ),
    "a graph's parameters are not updated": Mutation(
        file=GRAPHS,
        old="        self._now().update_draft_model_metadata(draft_model_metadata)",
        new="        if not self._now().draft_model_metadata:\n"
        "            self._now().update_draft_model_metadata(draft_model_metadata)",
        check="test_changing_k.py",
        case="eagle",
        said=f"{ENDED}.*actual_seq_lengths ends at",
    ),
    "a stream that a capture does not join": Mutation(
        file=LOOP,
        old="        drafts = [self.pick(last[rows], sampler)]\n",
        new="        side = torch.npu.Stream()\n"
        "        side.wait_stream(torch.npu.current_stream())\n"
        "        with torch.npu.stream(side):\n"
        "            drafts = [self.pick(last[rows], sampler)]\n",
        case="eagle-full_decode_only",
        said=f"{ENDED}.* ends without waiting for stream",
    ),
    "a host buffer is overwritten after an asynchronous copy": Mutation(
        file="ops/send.py",
        old='    return host if device.type == "cpu" else host.pin_memory().to(device, '
        "non_blocking=True)\n",
        new="    pinned = host.pin_memory()\n"
        "    moved = pinned.to(device, non_blocking=True)\n"
        "    pinned.zero_()\n"
        "    return moved\n",
        check="test_matrix.py",
        case="eagle-full_decode_only",
        said=f"{ENDED}.*overwritten before the host had waited",
    ),
    "keys of accepted paths stay where they were written": Mutation(
        file="worker/kept_rows.py",
        old="layer.impl.do_kv_cache_update(layer, key, value, layer.kv_cache, slots[id(whole)])",
        new="del layer, key, value",
        check="test_trees.py",
        case="full_decode_only",
        said=ANSWERS,
    ),
    "rows of a tree see all rows before them": Mutation(
        file="worker/tree_plan.py",
        old="        seen[row] = seen[root + 1 + parent]\n",
        new="        del parent\n",
        check="test_trees.py",
        case="full_decode_only",
        said=ANSWERS,
    ),
    "a graph's text ends behind the rows of its trees": Mutation(
        file=TREES,
        old="contexts = [max(length - width, 0) for",
        new="contexts = [length for",
        check="test_trees.py",
        case="full_decode_only",
        said=ANSWERS,
    ),
    "passes of a tree read the hidden states of the pass before": Mutation(
        file=LOOP,
        old="self.hidden_states[:num_reqs] = states[each.before]\n",
        new="self.hidden_states[:num_reqs] = states[-1]\n",
        check="test_trees.py",
        case="eagle3-full_decode_only",
    ),
    "passes of a tree go on in the text from the pass before": Mutation(
        file=LOOP,
        old="own = positions if self.drafts_in_place else positions + (each.depth + 1)",
        new="own = positions + len(drafts)",
        check="test_trees.py",
        case="eagle3-full_decode_only",
    ),
    "a replay updates the passes of a tree by their number": Mutation(
        file=METADATA,
        old="by_depth[each.depth + 1] for each in later",
        new="by_depth[min(i, len(by_depth) - 1)] for i, _ in enumerate(later, 1)",
        check="test_trees.py",
        case="eagle3-full_decode_only",
    ),
    "the log sums of paths are those of other heads": Mutation(
        file=JOINED,
        old="        return out, sums.transpose(1, 2)\n",
        new="        return out, sums\n",
        check="test_trees.py",
        case="full_decode_only",
        said=ANSWERS,
    ),
}
