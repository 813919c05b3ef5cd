"""Drafters of heads: which state they read, what they return, and what they load."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.config.checkpoints import HIDDEN, VOCAB, WEIGHTS, edit_config
from tests.config.heads import write_mlp
from tests.methods.heads import WRITERS, make_drafter, make_heads_step, randomize
from tests.methods.sampling import make_noise, make_sampling
from vllm_ascend_spec.checkpoint import hub
from vllm_ascend_spec.errors import CheckpointError, ConfigError
from vllm_ascend_spec.methods.heads import drafter as heads
from vllm_ascend_spec.methods.heads import weights
from vllm_ascend_spec.methods.heads.drafter import last_rows
from vllm_ascend_spec.methods.loops.sampling import DraftSampler

BOTH = pytest.mark.parametrize("method", WRITERS)


@pytest.fixture
def draft(method: str, tmp_path: Path) -> Path:
    folder = WRITERS[method](tmp_path / "draft")
    randomize(folder)
    return folder


def states(rows: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(rows, HIDDEN, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("sampled", "drafts", "rows"),
    [
        # No drafts were verified: a row for each request.
        ([[5], [6]], None, [0, 1]),
        ([[5], []], None, [0, 1]),
        # Three rows each: all kept, none kept but the bonus token, one kept.
        ([[5, 6, 7], [5], [5, 6]], [2, 2, 2], [2, 3, 7]),
        # Requests with different numbers of drafts, and one in the midst of its prompt.
        ([[5, 6], [7], [], [8, 9, 9, 9]], [1, 0, 0, 3], [1, 2, 3, 7]),
    ],
)
def test_a_draft_reads_the_row_of_the_last_token_that_was_kept(
    sampled: list[list[int]], drafts: list[int] | None, rows: list[int]
) -> None:
    step = make_heads_step(sampled, states(8), drafts)
    assert last_rows(sampled, step).tolist() == rows


@BOTH
class TestBoth:
    def test_drafts_are_those_of_that_row_alone(self, method: str, draft: Path) -> None:
        drafter, given = make_drafter(method, draft), states(6)
        step = make_heads_step([[5, 6, 7], [5]], given, [2, 2])
        drafts = drafter.draft(step)
        assert drafts.shape == (2, 2)
        assert drafts.dtype == torch.int64
        alone = [
            drafter.draft(make_heads_step([[token]], given[row : row + 1]))
            for row, token in ((2, 7), (3, 5))
        ]
        assert drafts.tolist() == torch.cat(alone).tolist()
        assert drafter.take_last_draft_probs() is None

    def test_fewer_drafts_are_the_first_ones(self, method: str, draft: Path) -> None:
        drafter, given = make_drafter(method, draft), states(2)
        whole = drafter.draft(make_heads_step([[5], [6]], given, num_drafts=2))
        first = drafter.draft(make_heads_step([[5], [6]], given, num_drafts=1))
        assert first.tolist() == whole[:, :1].tolist()
        assert drafter.draft(make_heads_step([[5], [6]], given, num_drafts=0)) == [[], []]

    def test_sampled_drafts_come_with_their_distributions(self, method: str, draft: Path) -> None:
        drafter = make_drafter(method, draft, draft_sample_method="probabilistic")
        sampling = make_sampling([0.7, 0.0])
        given = states(2)
        step = make_heads_step([[5], [6]], given, sampling=sampling)
        drafts = drafter.draft(step)
        probs = drafter.take_last_draft_probs()
        assert probs.shape == (2, 2, VOCAB)
        assert torch.allclose(probs.sum(-1), torch.ones(2, 2))
        assert bool((probs.gather(2, drafts[:, :, None]) > 0).all())
        # The second request is greedy, so it gets what a greedy engine drafts.
        greedy = make_drafter(method, draft).draft(make_heads_step([[5], [6]], given))
        assert drafts[1].tolist() == greedy[1].tolist()
        assert drafter.take_last_draft_probs() is None

    def test_ranks_draw_from_the_first_ones_states(
        self, method: str, draft: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Theirs differ in rounding; tests/e2e/test_tensor_parallel.py runs four of them."""
        first, own = states(2), states(2) + 1e-3
        group = SimpleNamespace(broadcast=lambda given, src: given.copy_(first))
        monkeypatch.setattr(heads, "get_tp_group", lambda: group)
        probs = []
        for size, given in ((1, first), (4, own), (1, own)):
            drafter = make_drafter(
                method, draft, tensor_parallel_size=size, draft_sample_method="probabilistic"
            )
            sampling = make_sampling([0.7, 0.9])
            torch.manual_seed(0)
            drafter.draft(make_heads_step([[5], [6]], given, sampling=sampling))
            probs.append(drafter.take_last_draft_probs())
        assert torch.equal(probs[0], probs[1])
        assert not torch.equal(probs[0], probs[2])

    @pytest.mark.parametrize("unseeded", [None, [False, True]])
    def test_drafts_with_a_seed_have_the_verifiers_noise(
        self,
        method: str,
        draft: Path,
        unseeded: list[bool] | None,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """And need no distribution."""
        logits: list[torch.Tensor] = []

        class Watched(heads.Picker):
            def __call__(self, given: torch.Tensor) -> torch.Tensor:
                logits.append(given)
                return super().__call__(given)

        monkeypatch.setattr(heads, "Picker", Watched)
        given, found = states(1).repeat(2, 1), set()
        for start in range(20):
            drafter = make_drafter(
                method,
                draft,
                draft_sample_method="probabilistic",
                noise=make_noise([3, 4], [start, start], unseeded),
            )
            sampling = make_sampling([5.0, 0.0 if unseeded is None else 1.0])
            logits.clear()
            drafts = drafter.draft(make_heads_step([[5], [5]], given, sampling=sampling))
            probs = drafter.take_last_draft_probs()
            assert (probs is None) == (unseeded is None)
            own = DraftSampler(make_sampling([5.0]), make_noise([3], [start]))
            assert drafts[0].tolist() == [int(own.draw(row[:1])[0]) for row in logits]
            found.add(tuple(drafts[0].tolist()))
        assert len(found) > 1

    def test_greedy_requests_have_no_distributions(self, method: str, draft: Path) -> None:
        drafter = make_drafter(method, draft, draft_sample_method="probabilistic")
        sampling = SimpleNamespace(all_greedy=True)
        drafter.draft(make_heads_step([[5]], states(1), sampling=sampling))
        assert drafter.take_last_draft_probs() is None

    def test_weights_have_the_targets_dtype(self, method: str, draft: Path) -> None:
        drafter = make_drafter(method, draft, dtype=torch.bfloat16).heads
        assert {p.dtype for p in drafter.parameters()} == {torch.bfloat16}
        assert not any(p.requires_grad for p in drafter.parameters())

    def test_weights_are_those_of_the_file(self, method: str, draft: Path) -> None:
        tensors = load_file(draft / WEIGHTS)
        drafter = make_drafter(method, draft).heads
        for name, value in drafter.state_dict().items():
            prefix = "speculator." if method == "mlp_speculator" else ""
            assert torch.equal(value, tensors[prefix + name]), name

    def test_the_profile_run_drafts(
        self, method: str, draft: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        drafter = make_drafter(method, draft)
        rows: list[int] = []
        drafter.heads.register_forward_pre_hook(lambda _, given: rows.append(len(given[0])))
        drafter.dummy_run(num_tokens=64, with_prefill=True, in_graph_capturing=True)
        assert rows == []
        drafter.dummy_run(num_tokens=64, is_profile=True)
        drafter.dummy_run(2, is_profile=True)
        assert rows == [4, 2]

    def test_dummy_weights(self, method: str, draft: Path) -> None:
        (draft / WEIGHTS).write_bytes((draft / WEIGHTS).read_bytes())
        drafter = make_drafter(method, draft, load_format="dummy")
        drafts = drafter.draft(make_heads_step([[5]], states(1)))
        assert bool(((drafts >= 0) & (drafts < VOCAB)).all())

    def test_what_could_not_be_checked_before_is_checked_when_it_is_loaded(
        self, method: str, draft: Path
    ) -> None:
        """A draft of a hub, or a target of one."""
        with pytest.raises(ConfigError, match="number of heads"):
            make_drafter(method, draft, num_drafts=4)
        with pytest.raises(CheckpointError, match="the target's vocab_size is 17"):
            make_drafter(method, draft, vocab=17)
        with pytest.raises(CheckpointError, match="the target's hidden_size is 5"):
            make_drafter(method, draft, hidden=5)
        (draft / WEIGHTS).write_bytes(b"12")
        with pytest.raises(CheckpointError, match="fetched whole"):
            make_drafter(method, draft)


def test_ties_that_are_none_are_refused(tmp_path: Path) -> None:
    folder = write_mlp(tmp_path / "draft", tie_weights=True)
    make_drafter("mlp_speculator", folder)
    tensors = load_file(folder / WEIGHTS)
    tensors["speculator.head.2.weight"][3, 1] = 0.5
    save_file(tensors, folder / WEIGHTS, {"format": "pt"})
    with pytest.raises(CheckpointError, match=r"speculator.head.2.weight and .* differ"):
        make_drafter("mlp_speculator", folder)
    edit_config(folder, tie_weights=False)
    make_drafter("mlp_speculator", folder)


class TestFetch:
    def test_a_folder_stays_where_it_is(self, tmp_path: Path) -> None:
        folder = write_mlp(tmp_path / "draft")
        assert weights.fetch(str(folder), None, None) == folder

    def test_a_name_is_fetched_from_the_hub(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import huggingface_hub

        folder = write_mlp(tmp_path / "draft")
        asked: dict[str, Any] = {}

        def snapshot_download(model: str, **options: Any) -> str:
            asked.update(options, model=model)
            return str(folder)

        monkeypatch.setattr(hub, "_offline", lambda: None)
        monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
        assert weights.fetch("org/heads", "v2", "/cache") == folder
        assert asked == {
            "model": "org/heads",
            "revision": "v2",
            "cache_dir": "/cache",
            "allow_patterns": ["*.safetensors", "*.json"],
        }

    def test_one_that_is_nowhere_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import huggingface_hub

        def snapshot_download(model: str, **options: Any) -> str:
            raise OSError("no such repository")

        monkeypatch.setattr(hub, "_offline", lambda: None)
        monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
        with pytest.raises(CheckpointError, match="cannot be fetched from Hugging Face: no such"):
            weights.fetch("org/heads", None, None)
