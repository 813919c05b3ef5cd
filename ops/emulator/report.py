"""What the emulator is asked and what it reports: ctypes of ``include/emulator/report.h``."""

from __future__ import annotations

import ctypes

PIPES = ("S", "V", "MTE2", "MTE3")
_PER_PIPE, _PER_CORE = ctypes.c_uint64 * len(PIPES), ctypes.c_uint64 * 64


class EmulatorOptions(ctypes.Structure):
    """``emulator_options``; ``ops/emulator/README.md`` says what each of them does."""

    _fields_ = (
        ("checks", ctypes.c_int32),
        ("auto_sync", ctypes.c_int32),
        ("nan_mode", ctypes.c_int32),
        ("strict_positions", ctypes.c_int32),
    )


class EmulatorStats(ctypes.Structure):
    """``emulator_stats``: counts of one launch."""

    _fields_ = (
        ("gm_read_bytes", _PER_PIPE),
        ("gm_write_bytes", _PER_PIPE),
        ("instructions", _PER_PIPE),
        ("vector_bytes", ctypes.c_uint64),
        ("scalar_gm_reads", ctypes.c_uint64),
        ("scalar_gm_writes", ctypes.c_uint64),
        ("sync_alls", ctypes.c_uint64),
        ("num_cores", ctypes.c_uint64),
        ("peak_ub", _PER_CORE),
        ("core_instructions", _PER_CORE),
        ("core_gm_bytes", _PER_CORE),
    )

    def pipes(self, name: str) -> dict[str, int]:
        """Return a count by pipe: ``gm_read_bytes``, ``gm_write_bytes`` or ``instructions``."""
        return dict(zip(PIPES, getattr(self, name), strict=True))


class BrokenRule(ctypes.Structure):
    """``emulator_error``: the first rule of the hardware that a launch broke."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("core", ctypes.c_int32),
        ("kind_name", ctypes.c_char * 24),
        ("kernel", ctypes.c_char * 64),
        ("op", ctypes.c_char * 64),
        ("site", ctypes.c_char * 256),
        ("message", ctypes.c_char * 1024),
    )


class EmulatorError(RuntimeError):
    """A kernel broke a rule of the hardware; the message says which and where.

    Attributes:
        kind: which rule, by its name in ``ops/emulator/README.md``.
        core: the core that broke it, -1 before any core ran.
        op: the instruction.
        site: file and line of the kernel's source.
    """

    def __init__(self, broken: BrokenRule) -> None:
        super().__init__(broken.message.decode())
        self.kind: str = broken.kind_name.decode()
        self.core: int = broken.core
        self.op: str = broken.op.decode()
        self.site: str = broken.site.decode()
