"""Build the C++ backend when the package is installed; ``pyproject.toml`` names this command.

It needs a C++17 compiler and PyTorch's headers and uses PyTorch's stable ABI, so one binary serves
torch 2.10 and later. Its checksum is written beside it: a library that was damaged later is not
loaded. Where something is missing the installation goes on without it: the reason is written there,
``vllm-ascend-spec info`` shows it, and the reference backend is used.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import sysconfig
from pathlib import Path

from setuptools import Extension
from setuptools.command.build_ext import build_ext

OLDEST_TORCH = "0x020a000000000000"  # 2.10, in the encoding of torch/csrc/stable/version.h
PROBLEM_SUFFIX = ".problem.txt"
CHECKSUM_SUFFIX = ".sha256"
COMPILER_REMEDY = (
    "remedy: install a C++17 compiler (g++ or clang++), then vllm-ascend-spec again; "
    "`pip install --verbose` shows what the compiler says"
)
COMMON = [
    *("-O3", "-std=c++17", "-fopenmp-simd", "-fvisibility=hidden", "-g0"),
    # Nobody reads errno or traps; without the second, gcc vectorises no choice between two values.
    *("-fno-math-errno", "-fno-trapping-math"),
]
# One build of the arithmetic for each; every other file is compiled for the oldest machine.
ARITHMETIC = "block_math.cpp"
PORTABLE = {"portable": []}
# No more than what dispatch.cpp asks the processor for, and words that old compilers know.
X86_LEVELS = {
    "x86_64_v3": ["-mavx2", "-mfma"],
    "x86_64_v4": [
        *("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma"),
        "-mprefer-vector-width=512",
    ],
}


class NotBuiltError(Exception):
    """Why the backend cannot be built, in one line."""


def find_torch() -> Path:
    """Return the folder of the installed torch.

    pip builds in an environment of its own, but runs the interpreter that it installs for; so
    torch is looked for beside that interpreter too.
    """
    places = [Path(sysconfig.get_path(name)) / "torch" for name in ("platlib", "purelib")]
    if (spec := importlib.util.find_spec("torch")) and spec.origin:
        places.insert(0, Path(spec.origin).parent)
    for place in places:
        if (place / "include/torch/csrc/stable/library.h").is_file():
            return place
    raise NotBuiltError(
        "torch 2.10 or later was not there when vllm-ascend-spec was installed; remedy: install "
        "torch first, then vllm-ascend-spec again (uv: with --no-build-isolation)"
    )


def leave_outcome(target: Path, problem: str | None) -> None:
    """Leave beside the library its checksum, or why it was not built, and not what held before.

    Args:
        target: where the library is or would be.
        problem: why it was not built; None if it was.
    """
    note = target.parent / (target.name.split(".")[0] + PROBLEM_SUFFIX)
    checksum = target.with_name(target.name + CHECKSUM_SUFFIX)
    if problem is None:
        note.unlink(missing_ok=True)
        digest = hashlib.sha256(target.read_bytes()).hexdigest()
        checksum.write_text(f"{digest}  {target.name}\n")
    else:
        target.unlink(missing_ok=True)
        checksum.unlink(missing_ok=True)
        note.write_text(problem + "\n")


class BuildNative(build_ext):
    """``build_ext`` that compiles each source with the flags it needs."""

    def build_extension(self, ext: Extension) -> None:
        """Build ``ext``, or write down why not."""
        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        ext.problem = None
        try:
            self._build(ext, target)
        except Exception as error:
            why = (str(error).strip().splitlines() or [type(error).__name__])[0]
            if not isinstance(error, NotBuiltError):
                why = f"{why}; {COMPILER_REMEDY}"
            self.warn(f"{ext.name} was not built: {why}")
            ext.problem = why
        leave_outcome(target, ext.problem)

    def copy_extensions_to_source(self) -> None:
        """Copy what was built, as an editable installation does, or why it was not."""
        super().copy_extensions_to_source()
        for ext in self.extensions:
            leave_outcome(Path(self.get_ext_fullpath(ext.name)), ext.problem)

    def _build(self, ext: Extension, target: Path) -> None:
        if os.name != "posix":
            raise NotBuiltError(f"the C++ backend is for Linux, this is {platform.system()}")
        torch = find_torch()
        levels = {**PORTABLE, **(X86_LEVELS if platform.machine() == "x86_64" else {})}
        headers = torch / "include"
        flags = [
            *COMMON,
            f"-DTORCH_TARGET_VERSION={OLDEST_TORCH}",
            f"-I{headers}",
            f"-fmacro-prefix-map={headers}=",  # torch's headers name themselves in their errors
        ]
        if len(levels) > 1:
            flags.append("-DSPEC_HAVE_X86_LEVELS")
        objects: list[str] = []
        for source in ext.sources:
            if Path(source).name != ARITHMETIC:
                objects += self._compile(source, Path(self.build_temp), flags)
                continue
            for isa, march in levels.items():
                own = [*flags, *march, f"-DSPEC_ISA={isa}"]
                objects += self._compile(source, Path(self.build_temp) / isa, own)
        # Found by name among what torch has loaded; no path of this machine is written down.
        self.compiler.link_shared_object(
            objects,
            str(target),
            library_dirs=[str(torch / "lib")],
            libraries=["torch_cpu"],
            target_lang="c++",
        )

    def _compile(self, source: str, folder: Path, flags: list[str]) -> list[str]:
        return self.compiler.compile([source], output_dir=str(folder), extra_postargs=flags)
