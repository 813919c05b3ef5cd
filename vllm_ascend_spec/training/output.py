"""What lies where in the output folder of ``train``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

OPTION = "--output"


@dataclass(frozen=True)
class Output:
    """The folder's files, each written by one phase.

    Attributes:
        folder: the folder itself.
    """

    folder: Path

    @property
    def settings(self) -> Path:
        """What was asked for, by the last start."""
        return self.folder / "settings.json"

    @property
    def prompts(self) -> Path:
        """Ids of the prompts that there were at the first start; later ones are not used."""
        return self.folder / "prompts.json"

    @property
    def lock(self) -> Path:
        """Held by the command that runs."""
        return self.folder / ".lock"

    @property
    def answers(self) -> Path:
        """The target's answers, those to held-out prompts not among them."""
        return self.folder / "answers.jsonl"

    @property
    def held_out(self) -> Path:
        """The tokens of the held-out prompts, a list of lists."""
        return self.folder / "held-out.json"

    @property
    def states(self) -> Path:
        """Folder of the hidden states, see ``shards.py``."""
        return self.folder / "states"

    @property
    def vocabulary(self) -> Path:
        """Folder of ``d2t.npy`` and ``t2d.npy``; there is none with the target's whole."""
        return self.folder / "vocabulary"

    @property
    def dataset(self) -> Path:
        """Folder of the samples' tokens, as the trainer reads them."""
        return self.folder / "dataset"

    @property
    def begin(self) -> Path:
        """The head to go on from, in the trainer's form."""
        return self.folder / "begin"

    @property
    def trainer_log(self) -> Path:
        """What the trainer logs."""
        return self.folder / "trainer.log"

    @property
    def checkpoints(self) -> Path:
        """Folder of the trainer's checkpoints."""
        return self.folder / "checkpoints"

    @property
    def metrics(self) -> Path:
        """Losses and accuracies of the trainer's steps, a JSON object per line."""
        return self.folder / "metrics.jsonl"

    @property
    def curves(self) -> Path:
        """Their drawing."""
        return self.folder / "curves.png"

    @property
    def head(self) -> Path:
        """The trained head, as vLLM reads it."""
        return self.folder / "head"

    @property
    def proof(self) -> Path:
        """Folder of what was measured of each way to draft, a JSON file for each."""
        return self.folder / "proof"

    @property
    def report(self) -> Path:
        """What the head was measured to give, as JSON."""
        return self.folder / "report.json"
