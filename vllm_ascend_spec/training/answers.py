"""The target's own answers to prompts, batch by batch, by an engine that the caller started."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Protocol, TypeVar

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.training.answer_file import Answer, AnswerFile
from vllm_ascend_spec.training.progress import Progress
from vllm_ascend_spec.training.prompts import Prompt
from vllm_ascend_spec.training.tokens import tokenize

BATCH = 256
SEEDS = 1 << 31
Item = TypeVar("Item")


class Engine(Protocol):
    """What is used of ``vllm.LLM``."""

    def generate(
        self, prompts: Sequence[Any], sampling_params: Sequence[Any], *, use_tqdm: bool
    ) -> Sequence[Any]:
        """Return an output for each prompt, in their order."""
        ...


@dataclass(frozen=True)
class Target:
    """What answers.

    Attributes:
        start: starts the target's engine, such as ``vllm.LLM``, once there is a prompt to answer.
        tokenizer: the target's, a transformers tokenizer.
        max_model_len: the engine's limit of prompt and answer together.
    """

    start: Callable[[], Engine]
    tokenizer: Any
    max_model_len: int


@dataclass(frozen=True)
class Sampling:
    """How answers are sampled.

    Attributes:
        max_tokens: most tokens of an answer.
        temperature: 0 for greedy.
        top_p: vLLM's.
        top_k: vLLM's; 0 for all tokens.
        seed: with a temperature, each prompt has a seed of its own that follows from this one, so
            that an answer does not depend on batches or on where a second start goes on.
    """

    max_tokens: int = 512
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0

    def made_by(self) -> dict[str, Any]:
        """Return it for :func:`~vllm_ascend_spec.training.answer_file.open_answers`."""
        return asdict(self)

    def params(self, prompt_id: str, room: int) -> Any:
        """Return vLLM's ``SamplingParams`` for one prompt.

        Args:
            prompt_id: its id.
            room: most tokens that the engine has room for.
        """
        from vllm import SamplingParams

        seed = (int(prompt_id, 16) + self.seed) % SEEDS if self.temperature else None
        return SamplingParams(
            max_tokens=min(self.max_tokens, room),
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            seed=seed,
            detokenize=False,
        )


@dataclass(frozen=True)
class Outcome:
    """What a call of :func:`answer_prompts` did.

    Attributes:
        answered: prompts answered now.
        too_long: prompts left out, since they leave no room for an answer.
    """

    answered: int
    too_long: int


@dataclass(frozen=True)
class Asked:
    """A prompt and its tokens.

    Attributes:
        id: the prompt's.
        token_ids: its tokens.
    """

    id: str
    token_ids: list[int]


def answer_prompts(
    target: Target,
    prompts: Iterable[Prompt],
    file: AnswerFile,
    sampling: Sampling,
    total: int,
    show: Callable[[str], object],
    batch: int = BATCH,
    held_out: Collection[tuple[int, ...]] = (),
) -> Outcome:
    """Answer those prompts that the file has no answer to.

    Args:
        target: what answers.
        prompts: in any order, read as they are needed.
        file: gets the answers, batch by batch.
        sampling: how they are sampled.
        total: number of prompts, for the progress.
        show: takes a line of progress after each batch.
        batch: prompts per batch; so many answers a kill can lose.
        held_out: tokens of prompts that are not answered, in whatever form they are given.

    Raises:
        ConfigError: the chat template refuses a conversation, or no prompt leaves room for an
            answer.
    """
    engine, progress, answered, too_long = None, None, 0, list[str]()
    asking = _unanswered(target, prompts, file, too_long, held_out)
    for asked in batched(asking, batch):
        if engine is None or progress is None:
            engine, progress = target.start(), Progress("answers", total, len(file))
        answers = _generate(engine, target.max_model_len, asked, sampling)
        file.append(answers)
        answered += len(answers)
        show(progress.add(len(answers), sum(len(answer.token_ids) for answer in answers)))
    if too_long and not len(file):
        problem = (
            f"all {len(too_long):,} prompts have as many tokens or more, so none can be answered"
        )
        raise ConfigError("--max-model-len", target.max_model_len, problem)
    return Outcome(answered, len(too_long))


def _unanswered(
    target: Target,
    prompts: Iterable[Prompt],
    file: AnswerFile,
    too_long: list[str],
    held_out: Collection[tuple[int, ...]],
) -> Iterator[Asked]:
    """Yield the prompts to answer; collect the ids of those that are too long."""
    for prompt in prompts:
        if prompt.id in file:
            continue
        token_ids = tokenize(prompt, target.tokenizer)
        if len(token_ids) >= target.max_model_len:
            too_long.append(prompt.id)
        elif tuple(token_ids) not in held_out:
            yield Asked(prompt.id, token_ids)


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield the items in lists of that size; the last one may be shorter."""
    left = iter(items)
    while found := list(islice(left, size)):
        yield found


def _generate(
    engine: Engine, max_model_len: int, asked: list[Asked], sampling: Sampling
) -> list[Answer]:
    outputs = engine.generate(
        [{"prompt_token_ids": each.token_ids} for each in asked],
        [sampling.params(each.id, max_model_len - len(each.token_ids)) for each in asked],
        use_tqdm=False,
    )
    return [
        Answer(each.id, tuple(each.token_ids), tuple(made.token_ids), str(made.finish_reason))
        for each, output in zip(asked, outputs, strict=True)
        for made in output.outputs
    ]
