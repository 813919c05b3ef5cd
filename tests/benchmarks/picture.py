"""Save pictures of developers' benchmarks, if matplotlib is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vllm_ascend_spec.errors import ConfigError

NO_MATPLOTLIB = "no picture: matplotlib is not installed (pip install matplotlib)"


def save(figure: Any, path: Path) -> str:
    """Write a figure as PNG and return a line that says so.

    Args:
        figure: a matplotlib figure.
        path: the file to write; its folder is created.

    Raises:
        ConfigError: the file cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            FigureCanvasAgg(figure).print_png(file)
    except OSError as error:
        raise ConfigError("--png", str(path), f"cannot be written: {error.strerror}") from None
    return f"picture: {path}"
