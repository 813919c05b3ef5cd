"""Counts of what the simulated device was asked to do, in this process.

Counting is always on. A caller takes a snapshot before and after, or names a scope:

    with counters.scope("verification"):
        verify(...)
    print(counters.scopes()["verification"].ops_launched)

Counts are what a host causes, not times: an op of a graph counts when the graph is replayed, as
`ops_replayed`, and the replay itself as one launch, `replays`. While a graph is captured nothing
counts, except in `captures`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

from npu_sim.native_parts import native

# What a caller adds under its own names lies beside the native events.
_CUSTOM = "custom:"


@dataclass(frozen=True)
class OpCount:
    """One op's counts."""

    launched: int = 0  # one by one, by the host
    replayed: int = 0  # in graphs
    captured: int = 0  # recorded on a tape; not executed as far as the counts go
    bytes_read: int = 0  # by the launched and the replayed ones
    bytes_written: int = 0

    @property
    def executed(self) -> int:
        """How often the device ran it."""
        return self.launched + self.replayed

    def __add__(self, other: OpCount) -> OpCount:
        """Add field by field."""
        return _combine(self, other, 1)

    def __sub__(self, other: OpCount) -> OpCount:
        """Subtract field by field."""
        return _combine(self, other, -1)


@dataclass(frozen=True)
class Snapshot:
    """All counts at one time, or between two."""

    # By "namespace::op.overload"; Triton kernels are "triton::…", collectives "hccl::…".
    ops: dict[str, OpCount] = field(default_factory=dict)
    # By native name: "sync:item", "h2d:bytes", "graph:replays", "custom:…"; see the properties.
    events: dict[str, int] = field(default_factory=dict)

    @property
    def ops_launched(self) -> int:
        """Device ops that the host launched one by one."""
        return sum(op.launched for op in self.ops.values())

    @property
    def ops_replayed(self) -> int:
        """Device ops that ran in graphs."""
        return sum(op.replayed for op in self.ops.values())

    @property
    def ops_executed(self) -> int:
        """Device ops that ran, in graphs or not."""
        return self.ops_launched + self.ops_replayed

    @property
    def bytes_read(self) -> int:
        """Bytes that ops read from device memory."""
        return sum(op.bytes_read for op in self.ops.values())

    @property
    def bytes_written(self) -> int:
        """Bytes that ops wrote to device memory."""
        return sum(op.bytes_written for op in self.ops.values())

    @property
    def replays(self) -> int:
        """Graphs launched."""
        return self.events.get("graph:replays", 0)

    @property
    def captures(self) -> int:
        """Graphs captured."""
        return self.events.get("graph:captures", 0)

    @property
    def host_to_device(self) -> tuple[int, int]:
        """Copies from the host, and their bytes."""
        return self.events.get("h2d:copies", 0), self.events.get("h2d:bytes", 0)

    @property
    def device_to_host(self) -> tuple[int, int]:
        """Copies to the host, and their bytes; `.item()` is one."""
        return self.events.get("d2h:copies", 0), self.events.get("d2h:bytes", 0)

    @property
    def syncs(self) -> dict[str, int]:
        """How often the host waited for the device, by reason.

        "stream", "event", "device": it asked to. "copy": a copy that is not asynchronous. "item":
        a number was read. "result": an op's result has a size, or is a number, that depends on
        data (`nonzero`, indexing by a mask, `equal`).
        """
        return {
            name.removeprefix("sync:"): count
            for name, count in self.events.items()
            if name.startswith("sync:")
        }

    @property
    def syncs_total(self) -> int:
        """How often the host waited for the device."""
        return sum(self.syncs.values())

    @property
    def custom(self) -> dict[str, int]:
        """What was counted with `count`."""
        return {
            name.removeprefix(_CUSTOM): amount
            for name, amount in self.events.items()
            if name.startswith(_CUSTOM)
        }

    def __add__(self, other: Snapshot) -> Snapshot:
        """Add what happened in two stretches of time."""
        return self._with(other, 1)

    def __sub__(self, other: Snapshot) -> Snapshot:
        """Leave what happened since an earlier snapshot; names without counts are left out."""
        return self._with(other, -1)

    def _with(self, other: Snapshot, sign: int) -> Snapshot:
        ops, events = {}, {}
        for name in self.ops.keys() | other.ops.keys():
            op = _combine(self.ops.get(name, OpCount()), other.ops.get(name, OpCount()), sign)
            if op != OpCount():
                ops[name] = op
        for name in self.events.keys() | other.events.keys():
            amount = self.events.get(name, 0) + sign * other.events.get(name, 0)
            if amount:
                events[name] = amount
        return Snapshot(dict(sorted(ops.items())), dict(sorted(events.items())))

    def as_dict(self) -> dict[str, Any]:
        """Return totals and details as plain numbers, for a record in JSON."""
        copies = ("host_to_device", "device_to_host")
        return {
            "ops_launched": self.ops_launched,
            "ops_replayed": self.ops_replayed,
            "replays": self.replays,
            "captures": self.captures,
            "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written,
            "syncs": self.syncs,
            **{f"{name}_copies": getattr(self, name)[0] for name in copies},
            **{f"{name}_bytes": getattr(self, name)[1] for name in copies},
            "custom": self.custom,
            "ops": {
                name: {part.name: getattr(op, part.name) for part in fields(op)}
                for name, op in self.ops.items()
            },
        }


def _combine(one: OpCount, other: OpCount, sign: int) -> OpCount:
    return OpCount(
        *(getattr(one, part.name) + sign * getattr(other, part.name) for part in fields(OpCount))
    )


_scopes: dict[str, Snapshot] = {}


def snapshot() -> Snapshot:
    """Return all counts since the process began."""
    counts = native().counters()
    ops = {name: OpCount(*numbers) for name, numbers in counts["ops"].items()}
    return Snapshot(ops, dict(counts["events"]))


def count(name: str, amount: int = 1) -> None:
    """Add a count of the caller's own, such as a draft model's tokens; see `Snapshot.custom`."""
    native().count_event(_CUSTOM + name, amount)


@contextmanager
def scope(name: str) -> Iterator[None]:
    """Count what happens inside under a name, too; scopes add up and may contain each other."""
    before = snapshot()
    try:
        yield
    finally:
        _scopes[name] = _scopes.get(name, Snapshot()) + (snapshot() - before)


def scopes() -> dict[str, Snapshot]:
    """Return what was counted in each scope since the last `reset_scopes`."""
    return dict(_scopes)


def reset_scopes() -> None:
    """Forget the scopes' counts."""
    _scopes.clear()
