"""Check further options of ``speculators train`` before anything starts."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Sequence
from typing import Any

from vllm_ascend_spec.errors import ConfigError

# Options of the library that say what our own do: where things are, what is trained, how long.
OURS = frozenset(
    {
        "checkpoint_freq",
        "config",
        "d2t_path",
        "data_path",
        "draft_vocab_size",
        "dry_run",
        "dump_config",
        "epochs",
        "from_pretrained",
        "hidden_states_backend",
        "hidden_states_path",
        "lr",
        "max_steps",
        "no_resume_from_checkpoint",
        "on_generate",
        "on_missing",
        "save_best",
        "save_path",
        "seed",
        "speculator_type",
        "t2d_path",
        "target_layer_ids",
        "token_freq_path",
        "train_data_ratio",
        "verifier_name_or_path",
        "vllm_endpoint",
    }
)


def check_library_options(option: str, words: Sequence[str], arguments: Sequence[str] = ()) -> None:
    """Refuse options that the library does not have or that are ours, and wrong values.

    Args:
        option: option of ours that they were given with, for errors.
        words: options and values, such as ``["--total-seq-len", "4096"]``.
        arguments: what the library is given before them.

    Raises:
        ConfigError: one line that names the option and what is wrong.
    """
    from speculators.train.config.resolution import build_parser
    from speculators.train.config.schema import TrainConfig

    said = " ".join(words)
    with _as_one_line(option, said):
        given = vars(build_parser().parse_args(list(words)))
    # Two that the parser fills in have these where they are not given.
    usual = {name for name, value in given.items() if value is None or value is False}
    taken = sorted((OURS & given.keys()) - usual)
    if taken:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in taken)
        raise ConfigError(option, said, f"train sets {names} itself; valid: other options")
    with _as_one_line(option, said):
        TrainConfig.resolve([*arguments, *_target(arguments), *words])


def _target(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the one option that the library requires, where it was not given."""
    return () if "--verifier-name-or-path" in arguments else ("--verifier-name-or-path", "target")


@contextlib.contextmanager
def _as_one_line(option: str, value: Any) -> Iterator[None]:
    """Turn the parser's usage and exit into an error."""
    written = io.StringIO()
    try:
        with contextlib.redirect_stderr(written), contextlib.redirect_stdout(written):
            yield
    except SystemExit:
        lines = [line.strip() for line in written.getvalue().splitlines() if line.strip()]
        about = " ".join(lines).partition("error: ")[2] or "is no option of speculators train"
        raise ConfigError(option, value, f"speculators train: {about}") from None
