"""Compile the native parts once per environment: the fake CANN runtime and the op dispatch.

The result lies in a folder named by a hash of the sources and of the versions that it was built
against, below `share/npu_sim` of the environment or `NPU_SIM_CACHE`. Processes that start at the
same time wait for the one that builds. `python -m npu_sim.build` builds ahead of the first use.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.machinery
import os
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from npu_sim import stubs

NATIVE = Path(__file__).parent / "native"
RUNTIME_FLAGS = ["-O1", "-std=c++17", "-fPIC", "-Wall", "-Wextra", "-Wno-unused-parameter"]
TORCH_FLAGS = ["-O1", "-std=c++20", "-fPIC", "-w"]
RUNTIME = "libascendcl.so"
EXTENSION = "_npu_sim_native.so"
# What torch_npu finds without CANN and without PyTorch.
SYSTEM_LIBRARIES = (
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
    "libstdc++.so.6",
)


class BuildError(RuntimeError):
    """The compiler, or something that it needs, failed."""


def package_folder(name: str) -> Path:
    """Find an installed package without importing it.

    Raises:
        BuildError: It is not installed.
    """
    # Past the finder that hides torch_npu where the simulator is off.
    spec = importlib.machinery.PathFinder.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise BuildError(f"{name} is not installed, see the README of npu_sim")
    return Path(next(iter(spec.submodule_search_locations)))


def sources() -> list[Path]:
    """List the native sources."""
    return sorted(NATIVE.glob("*/*"))


def fingerprint() -> str:
    """Name the folder of a build: same sources, same versions, same name."""
    digest = hashlib.sha256(repr((RUNTIME_FLAGS, TORCH_FLAGS, SYSTEM_LIBRARIES)).encode())
    for source in sources():
        digest.update(source.name.encode() + source.read_bytes())
    for package in ("torch", "torch-npu"):
        digest.update(version(package).encode())
    digest.update(sys.version.encode())
    return digest.hexdigest()[:16]


def cache_folder() -> Path:
    """Return the folder below which builds are kept."""
    chosen = os.environ.get("NPU_SIM_CACHE")
    return Path(chosen) if chosen else Path(sys.prefix) / "share" / "npu_sim"


def run(command: list[str]) -> None:
    """Run a compiler.

    Raises:
        BuildError: It failed; the message has its output.
    """
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    except FileNotFoundError:
        raise BuildError(f"no {command[0]}: the native parts of npu_sim need it") from None
    if done.returncode:
        raise BuildError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def build_runtime(folder: Path) -> None:
    """Compile the fake CANN runtime, its stubs, and libraries with CANN's other names."""
    torch_npu, torch = package_folder("torch_npu"), package_folder("torch")
    wanting = sorted(torch_npu.glob("lib/*.so")) + sorted(torch_npu.glob("*.so"))
    objects = compile_all(sorted(NATIVE.glob("runtime/*.cpp")), RUNTIME_FLAGS, folder)
    link_library(folder / RUNTIME, objects)
    system = [
        Path(subprocess.check_output(["g++", f"-print-file-name={name}"], text=True).strip())
        for name in SYSTEM_LIBRARIES
    ]
    torch_libraries = sorted(torch.glob("lib/*.so*"))
    names = stubs.missing(wanting, [folder / RUNTIME, *torch_libraries, *system])
    generated = folder / "stubs.cpp"
    generated.write_text(stubs.stub_source(names))
    objects += compile_all([generated], RUNTIME_FLAGS, folder)
    link_library(folder / RUNTIME, objects)
    present = {path.name for path in [*torch_npu.glob("lib/*.so"), *torch_libraries]}
    for name in sorted(stubs.loaded_by(wanting) - present - {RUNTIME, *SYSTEM_LIBRARIES}):
        # What torch_npu looks up in it by name is found in what it depends on.
        link_library(folder / name, [], [f"-L{folder}", "-Wl,--no-as-needed", f"-l:{RUNTIME}"])


def compile_all(paths: list[Path], flags: list[str], folder: Path) -> list[Path]:
    """Compile files one by one; return the object files."""
    objects = []
    for path in paths:
        objects.append(folder / f"{path.stem}.o")
        run(["g++", *flags, "-c", str(path), "-o", str(objects[-1])])
    return objects


def link_library(library: Path, objects: list[Path], options: Sequence[str] = ()) -> None:
    """Link a shared library that answers to its file name."""
    name = f"-Wl,-soname,{library.name}"
    run(["g++", "-shared", name, "-o", str(library), *map(str, objects), *options])


def build_extension(folder: Path) -> None:
    """Compile the extension of PyTorch that runs NPU ops on the CPU."""
    torch = package_folder("torch")
    includes = [torch / "include", torch / "include/torch/csrc/api/include", NATIVE]
    includes.append(Path(sysconfig.get_paths()["include"]))
    flags = [*TORCH_FLAGS, *(f"-I{path}" for path in includes)]
    # All files at once: each of them would spend half a minute on PyTorch's headers.
    together = folder / "extension.cpp"
    paths = sorted(NATIVE.glob("torch/*.cpp"))
    together.write_text("".join(f'#include "{path}"\n' for path in paths))
    objects = compile_all([together], flags, folder)
    options = [f"-L{torch / 'lib'}", f"-L{folder}", f"-Wl,-rpath,{torch / 'lib'}"]
    options += ["-ltorch", "-ltorch_cpu", "-lc10", "-ltorch_python", f"-l:{RUNTIME}"]
    link_library(folder / EXTENSION, objects, options)


def build() -> Path:
    """Compile what is not compiled yet.

    Returns:
        The folder with the libraries.

    Raises:
        BuildError: Something is missing or does not compile.
    """
    folder = cache_folder() / fingerprint()
    done = folder / "done"
    if done.exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            build_runtime(folder)
            build_extension(folder)
            for path in folder.glob("*.o"):
                path.unlink()
            done.touch()
    return folder


if __name__ == "__main__":
    print(build())
