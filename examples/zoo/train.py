"""Train the zoo from a CPython standard library, offline, on a CPU.

    python examples/zoo/train.py --work WORK corpus target eagle draft

Stages run in the order given; each reads what the ones before it wrote. Every stage is step-based
and seeded, so a rerun on one machine with one build of torch repeats it. A CPython source tree
is all the input there is (``--stdlib``, by default that of the running interpreter).
"""

from __future__ import annotations

import argparse
import math
import sys
import sysconfig
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parent))

from training import corpus, export, prompts
from training.eagle_head import EagleHead
from training.llama import Llama, rotary_table
from training.loop import Recipe, finish, fit
from training.shapes import DRAFT, EAGLE, TARGET

ZOO = Path(__file__).parent
RECIPES = {
    "target": Recipe(steps=4200, batch_size=6, length=384, learning_rate=2e-3, seed=1),
    "eagle": Recipe(steps=2400, batch_size=8, length=256, learning_rate=2e-3, seed=7),
    "draft": Recipe(steps=1500, batch_size=8, length=256, learning_rate=3e-3, seed=3),
}
UNROLL = 3
LATER_STEP_WEIGHT = 0.8
REGRESSION_WEIGHT = 1.0
DISTILLATION_WEIGHT = 0.3


@torch.no_grad()
def perplexity(model: Llama, batches: list[torch.Tensor]) -> dict[str, float]:
    """Return loss (nats per token) and perplexity over ``batches`` [≤ 8, length + 1] each."""
    total, count = 0.0, 0
    for tokens in batches:
        logits = model.logits(model(tokens[:, :-1])).float().flatten(0, 1)
        total += F.cross_entropy(logits, tokens[:, 1:].flatten(), reduction="sum").item()
        count += tokens[:, 1:].numel()
    return {"loss": round(total / count, 4), "perplexity": round(math.exp(total / count), 2)}


def windows(work: Path, recipe: Recipe) -> corpus.Windows:
    """Return the training batches of ``recipe``."""
    return corpus.Windows(work / "train.pt", recipe.seed, recipe.batch_size, recipe.length)


def train_target(work: Path, out: Path, recipe: Recipe) -> None:
    """Train the target by next-token prediction."""
    model = Llama(TARGET, seed=0)
    print("parameters:", sum(p.numel() for p in model.parameters()), flush=True)
    held_out = corpus.held_out_batches(work / "held.pt", recipe.length)

    @torch.compile
    def cross_entropy(tokens: torch.Tensor) -> torch.Tensor:
        logits = model.logits(model(tokens[:, :-1])).float().flatten(0, 1)
        return F.cross_entropy(logits, tokens[:, 1:].flatten())

    def loss_fn(tokens: torch.Tensor) -> tuple[torch.Tensor, list[float]]:
        loss = cross_entropy(tokens)
        return loss, [loss.item()]

    batches = windows(work, recipe)
    record = fit("target", list(model.parameters()), loss_fn, batches.next, recipe)
    state = {f"model.{k}": v for k, v in model.state_dict().items()}
    export.save(out / "target", work / "tokenizer", TARGET, state)
    finish("target", record, lambda: perplexity(model, held_out), out)


def train_draft(work: Path, out: Path, recipe: Recipe) -> None:
    """Train the one-layer draft model to imitate the target's distribution."""
    target, model = export.load_target(out / "target"), Llama(DRAFT, seed=2)
    # The target's embeddings are a far better start than noise for a model of the same width.
    model.embed_tokens.load_state_dict(target.embed_tokens.state_dict())
    held_out = corpus.held_out_batches(work / "held.pt", recipe.length)

    @torch.compile
    def distillation(tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            goal = target.logits(target(tokens[:, :-1])).float()
        logits = model.logits(model(tokens[:, :-1])).float()
        loss = -(goal.softmax(-1) * logits.log_softmax(-1)).sum(-1).mean()
        return loss, (logits.argmax(-1) == goal.argmax(-1)).float().mean()

    def loss_fn(tokens: torch.Tensor) -> tuple[torch.Tensor, list[float]]:
        loss, agreement = distillation(tokens)
        return loss, [loss.item(), agreement.item()]

    batches = windows(work, recipe)
    record = fit("draft", list(model.parameters()), loss_fn, batches.next, recipe)
    state = {f"model.{k}": v for k, v in model.state_dict().items()}
    export.save(out / "draft", work / "tokenizer", DRAFT, state)
    finish("draft", record, lambda: perplexity(model, held_out), out)


def train_eagle(work: Path, out: Path, recipe: Recipe) -> None:
    """Train the EAGLE head over ``UNROLL`` steps of its own loop (regression + distillation)."""
    target, head = export.load_target(out / "target"), EagleHead(EAGLE, seed=4)
    held_out = corpus.held_out_batches(work / "held.pt", recipe.length)

    @torch.compile
    def unrolled(tokens: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        with torch.no_grad():
            hidden = target(tokens[:, :-1])
            goal = target.logits(hidden[:, 1:]).float()
            embeddings = target.embed_tokens(tokens[:, 1:-1])
        probabilities, choice = goal.softmax(-1), goal.argmax(-1)
        features, rotation = hidden[:, :-1], rotary_table(embeddings.shape[1], EAGLE.head_dim)
        steps: list = []
        total, agreements = torch.zeros(()), []
        for step in range(UNROLL):
            output = head.step(embeddings, features, rotation, steps)
            logits = target.logits(output).float()
            distil = -(probabilities * logits.log_softmax(-1)).sum(-1)[:, step:].mean()
            regress = F.smooth_l1_loss(output[:, step:].float(), hidden[:, 1 + step :].float())
            loss = DISTILLATION_WEIGHT * distil + REGRESSION_WEIGHT * regress
            total = total + LATER_STEP_WEIGHT**step * loss
            agreements.append((logits.argmax(-1) == choice)[:, step:].float().mean())
            features = torch.cat([features[:, :1], output[:, :-1]], 1)
        return total, agreements

    def loss_fn(tokens: torch.Tensor) -> tuple[torch.Tensor, list[float]]:
        loss, agreements = unrolled(tokens)
        return loss, [loss.item(), *(a.item() for a in agreements)]

    @torch.no_grad()
    def evaluate() -> dict[str, float]:
        figures = torch.tensor([loss_fn(tokens)[1] for tokens in held_out]).mean(0).tolist()
        names = ["loss", *(f"agreement_{step + 1}" for step in range(UNROLL))]
        return {name: round(value, 4) for name, value in zip(names, figures, strict=True)}

    batches = windows(work, recipe)
    record = fit("eagle", list(head.parameters()), loss_fn, batches.next, recipe)
    state = {
        (name if name.startswith("fc.") else f"layers.0.{name}"): value
        for name, value in head.state_dict().items()
    }
    state["embed_tokens.weight"] = target.embed_tokens.weight
    export.save(out / "eagle", work / "tokenizer", EAGLE, state)
    finish("eagle", record, evaluate, out)


TRAINERS = {"target": train_target, "eagle": train_eagle, "draft": train_draft}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stages", nargs="+", choices=["corpus", *TRAINERS])
    parser.add_argument("--work", type=Path, required=True, help="folder for the token streams")
    parser.add_argument("--out", type=Path, default=ZOO, help="where the checkpoints go")
    parser.add_argument(
        "--stdlib", type=Path, default=Path(sysconfig.get_paths()["stdlib"]), help="CPython's Lib"
    )
    parser.add_argument("--steps", type=int, help="override the number of steps (for a trial)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    for stage in args.stages:
        if stage == "corpus":
            corpus.build(args.stdlib, args.work)
            prompts.write(args.work, args.out)
            continue
        recipe = RECIPES[stage]
        if args.steps:
            recipe = Recipe(**{**vars(recipe), "steps": args.steps})
        TRAINERS[stage](args.work, args.out, recipe)


if __name__ == "__main__":
    main()
