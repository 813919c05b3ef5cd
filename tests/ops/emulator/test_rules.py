"""Each rule with a kernel that keeps it and one that breaks it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ops.emulator.report import PIPES, EmulatorError, EmulatorStats
from tests.ops.emulator.build import (
    AUTO_NONE,
    AUTO_SCALAR,
    AUTO_VECTOR,
    Host,
    build,
    requires_compiler,
)

pytestmark = requires_compiler

PROBES = Path(__file__).parent / "probes"
# probe: the kind of its report when it is wrong
MEMORY = {
    "ub_overflow": "ub-overflow",
    "ub_bounds": "ub-bounds",
    "ub_element": "ub-bounds",
    "ub_offset": "ub-bounds",
    "ub_part": "ub-bounds",
    "tbuf_size": "ub-bounds",
    "select_reserve": "ub-overflow",
    "select_reserve_later": "ub-overflow",
    "reduce_scratch": "ub-bounds",
    "copy_size": "alignment",
    "copy_out_size": "alignment",
    "copy_address": "alignment",
    "vector_address": "alignment",
    "reduce_address": "alignment",
    "reduce_value_address": "alignment",
    "compare_size": "alignment",
    "gm_address": "alignment",
    "gm_read": "gm-bounds",
    "gm_write": "gm-bounds",
    "gm_outside": "gm-bounds",
    "gm_neighbour": "gm-bounds",
    "gm_declared": "gm-bounds",
    "gm_gap": "gm-bounds",
    "gm_rows": "gm-bounds",
    "read_only": "read-only",
    "queue_alloc": "queue-depth",
    "queue_depth": "queue-depth",
    "queue_empty": "queue-order",
    "queue_leak": "queue-leak",
    "queue_free_twice": "queue-order",
    "queue_free_part": "queue-order",
    "queue_other": "queue-order",
    "use_after_free": "use-after-free",
    "use_while_queued": "use-after-free",
    "no_init_buffer": "queue-order",
    "uninitialised_ub": "uninitialised",
    "uninitialised_again": "uninitialised",
    "uninitialised_padding": "uninitialised",
    "uninitialised_dummy": "uninitialised",
    "uninitialised_scratch": "uninitialised",
    "uninitialised_work": "uninitialised",
}
EVENTS = [f"{a}_{b}" for a in PIPES for b in PIPES if a != b]
ORDER = {f"order_{event}": "unordered" for event in EVENTS} | {
    "order_wrong_event": "unordered",
    "order_chain": "unordered",
    "order_queue_scalar": "unordered",
    "order_queue_reuse": "unordered",
    "order_copies_in": "unordered",
    "order_copies_out": "unordered",
    "order_global": "unordered",
    "order_barrier_all": "unordered",
    "flag_unset": "flag",
    "flag_left": "flag",
    "flag_twice": "flag",
    "flag_other_event": "flag",
    "flag_raw_id": "flag",
    "flag_range": "flag",
    "event_not_released": "flag",
    "event_released_twice": "flag",
    "event_none_left": "flag",
}
CORES = {
    "race_write_write": "core-race",
    "race_write_read": "core-race",
    "race_read_write": "core-race",
    "race_second_round": "core-race",
    "race_scalar": "core-race",
    "cache_not_cleaned": "cache-dirty",
    "cache_half_cleaned": "cache-dirty",
    "cache_all_cleaned": "cache-dirty",
    "cache_dirty_copy": "cache-dirty",
    "cache_dirty_other": "cache-dirty",
    "cache_cleaned_late": "core-race",
    "cache_stale": "cache-stale",
    "cache_stale_neighbour": "cache-stale",
    "cache_stale_own_copy": "cache-stale",
    "cache_shared": "cache-shared",
    "cache_shared_later": "cache-shared",
    "cache_shared_copy": "cache-shared",
    "cache_shared_own_copy": "cache-shared",
    "sync_all_missed": "sync-all",
    "sync_all_twice": "sync-all",
    "sync_all_type": "sync-all",
}
ARGUMENTS = {
    "repeat": "argument",
    "mask": "argument",
    "mask_bits": "argument",
    "dst_block_stride": "argument",
    "reduce_repeat": "argument",
    "count": "argument",
    "overlap": "argument",
    "overlap_widening": "argument",
    "block_count": "argument",
    "block_len": "argument",
    "padding": "argument",
    "shift": "argument",
    "pattern": "argument",
    "gather_offset": "alignment",
    "compare_integers": "unsupported",
    "select_mode": "unsupported",
    "queue_buffers": "argument",
    "many_buffers": "argument",
    "empty_buffer": "argument",
    "second_pipe": "argument",
    "assertion": "assertion",
}
# probe: (file, kind, cores)
RULES = {
    name: (file, kind, cores)
    for file, kinds, cores in (
        ("memory", MEMORY, 1),
        ("order", ORDER, 1),
        ("cores", CORES, 4),
        ("arguments", ARGUMENTS, 1),
    )
    for name, kind in kinds.items()
}


def probe(
    name: str, *, wrong: bool, cores: int = 1, output: bool = False, **options
) -> EmulatorStats:
    file = next((r[0] for n, r in RULES.items() if n == name), "memory")
    host = Host(build(PROBES / f"{file}.cpp", optimise=False), **options)
    # The data cache works in lines of 64 bytes: start the tensors at one.
    tensors = [aligned(4096), aligned(512), aligned(4096), aligned(4096)]
    out = aligned(64) if output else None
    return host(f"probe_{name}", cores, wrong, *tensors, out)


def aligned(floats: int) -> torch.Tensor:
    """Return zeros, float32 [floats], that start at a multiple of 64 bytes."""
    room = torch.zeros(floats + 16)
    return room[-(room.data_ptr() // 4) % 16 :][:floats]


class TestRules:
    @pytest.mark.parametrize("name", RULES)
    def test_a_kernel_that_keeps_it_passes(self, name: str):
        probe(name, wrong=False, cores=RULES[name][2])

    @pytest.mark.parametrize("name", RULES)
    def test_a_kernel_that_breaks_it_is_reported(self, name: str):
        with pytest.raises(EmulatorError) as broken:
            probe(name, wrong=True, cores=RULES[name][2])
        assert broken.value.kind == RULES[name][1], str(broken.value)


class TestOptions:
    def test_vector_order_is_the_compilers_unless_asked_for(self):
        # In order.cpp, but not in ORDER: it breaks nothing by default.
        order = Host(build(PROBES / "order.cpp", optimise=False), auto_sync=AUTO_NONE)
        tensors = [aligned(4096) for _ in range(4)]
        order("probe_order_vector", 1, False, *tensors, None)
        with pytest.raises(EmulatorError, match="PipeBarrier<PIPE_V>") as broken:
            order("probe_order_vector", 1, True, *tensors, None)
        assert broken.value.kind == "unordered"
        Host(order.library, auto_sync=AUTO_VECTOR)("probe_order_vector", 1, True, *tensors, None)

    @pytest.mark.parametrize("event", EVENTS)
    def test_auto_scalar_orders_the_scalar_unit_only(self, event: str):
        if "S" in event.split("_"):
            probe(f"order_{event}", wrong=True, auto_sync=AUTO_SCALAR)
        else:
            with pytest.raises(EmulatorError):
                probe(f"order_{event}", wrong=True, auto_sync=AUTO_SCALAR)

    @pytest.mark.parametrize("name", ["position", "position_out"])
    def test_strict_positions(self, name: str):
        probe(name, wrong=True)
        probe(name, wrong=False, strict_positions=True)
        with pytest.raises(EmulatorError) as broken:
            probe(name, wrong=True, strict_positions=True)
        assert broken.value.kind == "position"

    def test_an_output_must_be_written_whole(self):
        probe("not_written", wrong=False, output=True)
        with pytest.raises(EmulatorError, match="byte 252 of output 'out'") as broken:
            probe("not_written", wrong=True, output=True)
        assert broken.value.kind == "not-written"

    def test_without_checks_only_bounds_are_left(self):
        for name in ("order_MTE2_V", "uninitialised_ub", "queue_leak"):
            probe(name, wrong=True, checks=False)
        for name in ("race_write_write", "cache_stale"):
            probe(name, wrong=True, cores=4, checks=False)
        for name in ("ub_bounds", "gm_read", "gm_gap", "read_only", "ub_overflow"):
            with pytest.raises(EmulatorError) as broken:
                probe(name, wrong=True, checks=False)
            assert broken.value.kind == RULES[name][1]


class TestReports:
    def test_a_report_says_where_what_how_much_and_what_to_do(self):
        with pytest.raises(EmulatorError) as broken:
            probe("ub_part", wrong=True)
        error = broken.value
        assert str(error) == (
            f"ub_part, core 0, Adds at {error.site}: src needs 132 bytes, 4 more than its tensor"
            " has (128; VECCALC buffer of 256 bytes at 0). Remedy: allocate more in InitBuffer or"
            " process less. [ub-bounds]"
        )
        assert (error.op, error.core) == ("Adds", 0)
        # The probe's body is one macro argument, so its line is the last of it.
        file, line = error.site.split(":")
        assert file == "memory.cpp"
        lines = (PROBES / file).read_text().splitlines()
        assert any("ub_part" in text for text in lines[int(line) - 6 : int(line)])

    def test_a_report_names_the_core(self):
        with pytest.raises(EmulatorError) as broken:
            probe("race_write_write", wrong=True, cores=4)
        assert broken.value.core == 1
        assert "core 0 has written" in str(broken.value)

    def test_reports_repeat(self):
        def report() -> str:
            with pytest.raises(EmulatorError) as broken:
                probe("race_second_round", wrong=True, cores=4)
            return str(broken.value)

        assert report() == report()

    @pytest.mark.parametrize("cores", [0, 65])
    def test_a_launch_has_1_to_64_cores(self, cores: int):
        with pytest.raises(EmulatorError, match=f"{cores} blocks. Remedy: 1 to 64"):
            probe("count", wrong=False, cores=cores)
        assert probe("count", wrong=False, cores=48).num_cores == 48
