"""``bench serve``: compare a server with speculation to one without, in turn.

Peers, if given, are the vLLM of other environments with the same speculation. Each round restarts
all servers, because two starts of the same server were seen to differ by 10%, from the first
request to the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from vllm_ascend_spec.bench import privacy, provenance
from vllm_ascend_spec.bench.client import ClientLoad, LoadResult, run_load
from vllm_ascend_spec.bench.peer import Peer
from vllm_ascend_spec.bench.progress import Progress
from vllm_ascend_spec.bench.server import Server
from vllm_ascend_spec.bench.start_timeout import START_TIMEOUT_S
from vllm_ascend_spec.bench.stats import Summary, paired_ratio
from vllm_ascend_spec.metrics.acceptance import AcceptanceCounts, from_prometheus
from vllm_ascend_spec.metrics.rule import note_on_rule, rule_from_prometheus

MODES: dict[str, tuple[str, ...]] = {"eager": ("--enforce-eager",), "compiled": ()}
CANDIDATE, NONE = "speculation", "none"


@dataclass(frozen=True)
class ServeBenchConfig:
    """What ``bench serve`` measures.

    Attributes:
        model: the target.
        speculative_config: config of the candidate and the peers.
        loads: loads to send, one after another.
        modes: keys of :data:`MODES`.
        rounds: starts of each server; after each, it answers each load once to warm up and once
            timed.
        arguments: more arguments for all servers.
        environment: variables for all servers.
        peers: other environments whose vLLM is measured, too.
        start_timeout_s: seconds without any sign of life, after which a server's start is given up.
    """

    model: str
    speculative_config: Mapping[str, Any]
    loads: tuple[ClientLoad, ...]
    modes: tuple[str, ...] = ("eager", "compiled")
    rounds: int = 5
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    peers: tuple[Peer, ...] = ()
    start_timeout_s: float = START_TIMEOUT_S


def run(plan: ServeBenchConfig, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run the whole plan and return its record.

    Args:
        plan: what is measured.
        tell: prints a line for each result, as soon as there is one.
    """
    record: dict[str, Any] = {
        "benchmark": "serve",
        "provenance": provenance.collect(),
        "model": privacy.path(plan.model),
        "speculative_config": privacy.options(plan.speculative_config),
        "arguments": privacy.arguments(plan.arguments),
        "server_environment": privacy.environment(plan.environment),
        "rounds": plan.rounds,
        "results": [],
    }
    if plan.peers:
        record["peers"] = {peer.name: dict(peer.versions) for peer in plan.peers}
    for mode in plan.modes:
        found = [ServeResults() for _ in plan.loads]
        for index in range(plan.rounds):
            with _servers(plan, mode, index) as servers, Progress(len(plan.loads)) as progress:
                for load, of_load in zip(plan.loads, found, strict=True):
                    title = f"{mode}, {load.name}, round {index + 1} of {plan.rounds}"
                    progress.next(title)
                    _pass(plan.model, load, servers, index, of_load)
        for load, of_load in zip(plan.loads, found, strict=True):
            row = {"mode": mode, **_row(plan, load, of_load)}
            tell(format_row(row))
            record["results"].append(row)
    return record


@dataclass
class ServeResults:
    """The results of one load over all rounds.

    Attributes:
        runs: results by server, one for each round.
        accepted: acceptance of the candidate's drafts.
        rule: acceptance rule of the candidate.
    """

    runs: dict[str, list[LoadResult]] = field(default_factory=dict)
    accepted: AcceptanceCounts = field(default_factory=AcceptanceCounts)
    rule: str | None = None


@contextmanager
def _servers(plan: ServeBenchConfig, mode: str, index: int) -> Iterator[dict[str, Server]]:
    """Start the servers of a round. A server is faster if it starts after others, so they turn."""

    def server(
        spec: Mapping[str, Any] | None,
        environment: Mapping[str, str] | None = None,
        launcher: Sequence[str] | None = None,
    ) -> Server:
        return Server(
            plan.model,
            spec,
            arguments=(*plan.arguments, *MODES[mode]),
            environment={**plan.environment, **(environment or {})},
            start_timeout_s=plan.start_timeout_s,
            launcher=launcher,
        )

    servers = {CANDIDATE: server(plan.speculative_config), NONE: server(None)}
    for peer in plan.peers:
        servers[peer.name] = server(
            plan.speculative_config, peer.environment, peer.launcher(plan.model)
        )
    for name, started in servers.items():
        started.title = f"{name}, {mode}"
    with ExitStack() as stack:
        for name in in_turn(servers, index):
            stack.enter_context(servers[name])
        yield servers


def in_turn(servers: Mapping[str, Server], index: int) -> list[str]:
    """Return the names of servers in the order of a round: A B in one, B A in the next."""
    return list(servers) if index % 2 == 0 else list(servers)[::-1]


def _pass(
    model: str, load: ClientLoad, servers: Mapping[str, Server], index: int, found: ServeResults
) -> None:
    """Send a load to all servers in turn."""
    for server in servers.values():
        run_load(server.url, model, load)  # compiles and warms the caches
    before = from_prometheus(servers[CANDIDATE].metrics())
    for name in in_turn(servers, index):
        found.runs.setdefault(name, []).append(run_load(servers[name].url, model, load))
    metrics = servers[CANDIDATE].metrics()
    found.accepted += from_prometheus(metrics) - before
    found.rule = rule_from_prometheus(metrics)


def _row(plan: ServeBenchConfig, load: ClientLoad, found: ServeResults) -> dict[str, Any]:
    runs = {name: found.runs[name] for name in (CANDIDATE, NONE, *(p.name for p in plan.peers))}
    row = {
        "load": load.name,
        "prompts": len(load.prompts),
        "max_tokens": load.max_tokens,
        "tokens_per_s": {name: _summary(runs[name], "tokens_per_s") for name in runs},
        "time_per_output_token_ms": {
            name: _summary(runs[name], "time_per_output_token_ms") for name in runs
        },
        "speedup": _ratio(runs, NONE),
        "acceptance": acceptance_record(found.accepted, found.rule),
        "identical": _identical(load, runs),
    }
    if plan.peers:
        row["ours_to_peers"] = {peer.name: _ratio(runs, peer.name) for peer in plan.peers}
    return row


def _ratio(runs: Mapping[str, list[LoadResult]], name: str) -> dict[str, float]:
    """Return tokens per second of the candidate over those of another server."""
    ours, theirs = ([result.tokens_per_s for result in runs[n]] for n in (CANDIDATE, name))
    return paired_ratio(ours, theirs).as_dict()


def _summary(results: list[LoadResult], name: str) -> dict[str, float]:
    return Summary.of([getattr(result, name) for result in results]).as_dict()


def _identical(load: ClientLoad, runs: Mapping[str, list[LoadResult]]) -> str | None:
    """Count equal answers; only greedy ones have to be equal."""
    if load.temperature > 0:
        return None
    pairs = list(zip(runs[CANDIDATE][-1].answers, runs[NONE][-1].answers, strict=True))
    equal = sum(ours.token_ids == theirs.token_ids for ours, theirs in pairs)
    return f"{equal} of {len(pairs)}"


def acceptance_record(accepted: AcceptanceCounts, rule: str | None) -> dict[str, Any]:
    """Return the acceptance counts and the verification rule as entries of a JSON record."""
    tokens = accepted.tokens_per_step
    return {
        "rule": rule,
        "tokens_per_step": None if tokens is None else round(tokens, 3),
        "per_position": [round(share, 3) for share in accepted.per_position],
        "drafts": accepted.num_drafts,
    }


def format_row(row: Mapping[str, Any]) -> str:
    """Return one result as a line."""
    rates = row["tokens_per_s"]
    ratio = Summary(**row["speedup"])
    peers = "".join(
        f"  x{Summary(**found)} of {name}" for name, found in row.get("ours_to_peers", {}).items()
    )
    return (
        f"{row['mode']:9} {row['load']:17} "
        f"{rates[NONE]['median']:8.1f} -> {rates[CANDIDATE]['median']:8.1f} tokens/s  "
        f"x{ratio}  {row['acceptance']['tokens_per_step']} tokens/step"
        f"{note_on_rule(row['acceptance']['rule'])}  "
        f"identical: {row['identical'] or '-'}{peers}"
    )
