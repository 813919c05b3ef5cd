"""vllm-ascend's own ops (`torch.ops._C_ascend`), whose kernels nobody can build without CANN.

Their schemas are read, when they are first needed, from `csrc/torch_binding.cpp` of the source
distribution that is installed; nothing of that file is kept. Importing
`vllm_ascend.vllm_ascend_C`, vllm-ascend's extension module, is what needs them: the simulator puts
an empty module in its place and calls `define` here.
"""

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from npu_sim.references import load_all
from npu_sim.references.registry import META

NAMESPACE = "_C_ascend"
SOURCE_VARIABLE = "NPU_SIM_VLLM_ASCEND_SOURCE"
BINDING = Path("csrc", "torch_binding.cpp")

# The file defines the ops twice; the first half is for the 310P, which is not simulated.
_OTHER_SOC = re.compile(r"#ifdef ASCEND_PLATFORM_310P\b.*?\n#else\b", re.DOTALL)
_COMMENT = re.compile(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_DEFINITION = re.compile(r'\bops\.def\(\s*((?:"(?:[^"\\\n]|\\.)*"\s*)+)')
_LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')

_libraries: list[torch.library.Library] = []
_defined: list[str] = []


# Ops on the host: the number of a device on its card, and a view of pinned host memory for the NPU.
# None for the view is what a real device gives where such memory is not mapped.
_HOST_OPS: dict[str, Callable[..., Any]] = {
    "get_physical_device_id": lambda user_device_id: user_device_id,
    "get_npu_view_from_cpu_tensor": lambda cpu_tensor: None,
}


class CustomOpsError(RuntimeError):
    """vllm-ascend's sources are not where they were looked for, or not what was expected."""


def binding_file() -> Path:
    """Find torch_binding.cpp.

    Raises:
        CustomOpsError: It is nowhere; the message says where it was looked for.
    """
    named = os.environ.get(SOURCE_VARIABLE)
    roots = [Path(named)] if named else [Path(sys.prefix, "src", "vllm-ascend")]
    for root in roots:
        if (root / BINDING).is_file():
            return root / BINDING
    raise CustomOpsError(
        f"no {BINDING} in {', '.join(map(str, roots))}: set {SOURCE_VARIABLE} to vllm-ascend's "
        "unpacked source distribution (its wheel does not have the schemas of its ops)"
    )


def parse(source: str) -> list[str]:
    """Give the schemas that a binding file defines, in its order.

    Args:
        source: The text of torch_binding.cpp.
    """
    code = _COMMENT.sub(lambda match: match.group(1) or "", _OTHER_SOC.sub("", source, count=1))
    schemas = []
    for match in _DEFINITION.finditer(code):
        text = "".join(_LITERAL.findall(match.group(1))).replace('\\"', '"')
        schemas.append(" ".join(text.split()))
    return list(dict.fromkeys(schemas))


def define() -> list[str]:
    """Define vllm-ascend's ops once, with what tracing needs to know of those that have references.

    Kernels for the NPU are not registered here: that is done for all namespaces alike. Host ops
    have theirs.

    Returns:
        The ops' qualified names, such as "_C_ascend::npu_add_rms_norm_bias".

    Raises:
        CustomOpsError: There is no source, or a schema in it cannot be defined.
    """
    if _defined:
        return _defined
    path = binding_file()
    schemas = parse(path.read_text(encoding="utf-8"))
    if not schemas:
        raise CustomOpsError(f"{path} defines no ops; is it of another version?")
    load_all()
    library = torch.library.Library(NAMESPACE, "FRAGMENT")
    _libraries.append(library)
    names = [_define_one(library, schema, path) for schema in schemas]
    _defined.extend(names)
    return _defined


def _define_one(library: torch.library.Library, schema: str, path: Path) -> str:
    """Define one op with what it has apart from a kernel; give its qualified name."""
    try:
        library.define(schema)
    except RuntimeError as error:
        raise CustomOpsError(f"{path}: cannot define {schema!r}: {error}") from error
    name = schema.partition("(")[0].strip()
    if name in _HOST_OPS:
        library.impl(name, _HOST_OPS[name], "CompositeExplicitAutograd")
    qualified = f"{NAMESPACE}::{name}"
    if qualified in META:
        library.impl(name, META[qualified], "Meta")
    return qualified
