"""Write the dashboards, in English and Chinese: ``python examples/grafana/make.py``.

Both are made from one table, so that they show the same. A panel says what it shows in both
languages, what it asks Prometheus, and how wide it is; panels follow each other from the left.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "dashboards"
LANGUAGES = ("en", "zh")
WIDTH = 24
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Servers and engines that are chosen at the top; one that vLLM does not label has no engine.
HERE, SERVER = '{instance=~"$instance",engine=~"$engine"}', '{instance=~"$instance"}'


def rate(name: str, by: str = "", here: str = HERE) -> str:
    """Return how fast a counter counts, added up over all but some labels."""
    grouping = f" by ({by})" if by else ""
    return f"sum{grouping} (rate({name}{here}[$__rate_interval]))"


def share(part: str, whole: str, by: str = "") -> str:
    """Return how much one counter counts for each that another does."""
    return f"{rate(part, by)} / {rate(whole, by)}"


def quantile(level: float, name: str) -> str:
    """Return a quantile of a histogram."""
    return f"histogram_quantile({level}, {rate(f'{name}_bucket', 'le')})"


SPEC = "vllm:spec_decode_"
REQUESTS, TOKENS = f"{SPEC}verified_requests_total", f"{SPEC}verified_tokens_total"
DRAFTED, ACCEPTED = f"{SPEC}position_drafts_total", f"{SPEC}position_accepted_total"
LENGTHS, STEP = f"{SPEC}draft_length_steps_total", f"{SPEC}step_seconds_total"
VERIFICATION, DRAFTING = f"{SPEC}verification_seconds_total", f"{SPEC}drafting_seconds_total"
PATHS, NODES = f"{SPEC}tree_paths_total", f"{SPEC}tree_drafts_total"
DEPTH, TREE_ACCEPTED = f"{SPEC}tree_depth_total", f"{SPEC}tree_accepted_total"
ITL, TTFT = "vllm:inter_token_latency_seconds", "vllm:time_to_first_token_seconds"


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One panel.

    Attributes:
        kind: Grafana's name of it.
        width, height: in units of the grid, which is 24 wide.
        title: by language.
        about: what to know of it, by language.
        queries: what is asked, and how the answers are called.
        unit: Grafana's name of it.
        most: end of the axis; None for what comes.
        stacks: whether curves are laid on each other.
        words: what numbers are shown as, by language, with a colour each.
    """

    kind: str = "timeseries"
    width: int = 12
    height: int = 8
    title: tuple[str, str]
    about: tuple[str, str]
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    most: float | None = None
    stacks: bool = False
    words: tuple[tuple[tuple[str, str], str], ...] = ()


STATE = ((("fine", "正常"), "green"), (("low", "过低"), "red"))
DRAFTS = ((("drafting", "起草中"), "green"), (("paused", "已暂停"), "orange"))
PANELS = (
    Panel(
        kind="stat",
        width=6,
        height=4,
        title=("Output tokens per second", "每秒输出 token 数"),
        about=("All servers and engines that are chosen.", "所选服务与引擎的总和。"),
        queries=((rate("vllm:generation_tokens_total"), "tokens/s"),),
    ),
    Panel(
        kind="stat",
        width=6,
        height=4,
        title=("Tokens per step and request", "每个请求每步的 token 数"),
        about=(
            "Acceptance length: 1 would be as without speculation.",
            "接受长度：1 相当于没有投机推理。",
        ),
        queries=((share(TOKENS, REQUESTS), "tokens"),),
    ),
    Panel(
        kind="stat",
        width=6,
        height=4,
        title=("AcceptanceAlarm", "看门狗"),
        about=(
            "low: fewer than 5% of first drafts are accepted. Of several engines the worst.",
            "过低：第一个草稿的接受率低于 5%。多个引擎时取最差者。",
        ),
        queries=((f"max ({SPEC}acceptance_low{HERE})", "acceptance"),),
        words=STATE,
    ),
    Panel(
        kind="stat",
        width=6,
        height=4,
        title=("Rule of verification", "校验规则"),
        about=("Synthetic acceptance is not lossless.", "合成接受率（synthetic）不是无损的。"),
        queries=((f"{SPEC}verify_rule{SERVER} == 1", "{{rule}}, lossless: {{lossless}}"),),
    ),
    Panel(
        title=("Output tokens per second, by server", "各服务每秒输出 token 数"),
        about=("What clients get.", "客户端实际得到的速度。"),
        queries=(
            (rate("vllm:generation_tokens_total", "instance, engine"), "{{instance}} {{engine}}"),
        ),
    ),
    Panel(
        title=("Requests", "请求"),
        about=("Those that run, and those that wait.", "运行中与排队中的请求。"),
        queries=(
            (f"sum (vllm:num_requests_running{HERE})", "running"),
            (f"sum (vllm:num_requests_waiting{HERE})", "waiting"),
        ),
    ),
    Panel(
        title=("Tokens per step, by method and K", "按方法与 K 统计的每步 token 数"),
        about=(
            "K is how many drafts a request had in the step; K+1 is the most it can gain.",
            "K 为请求在该步的草稿数，最多可得 K+1 个 token。",
        ),
        queries=((share(TOKENS, REQUESTS, "method, k"), "{{method}} K={{k}}"),),
    ),
    Panel(
        title=("Acceptance by position and method", "按位置与方法统计的接受率"),
        about=(
            "Of the drafts at a position, how many were accepted; position 0 is the first.",
            "某位置的草稿中被接受的比例；位置 0 为第一个草稿。",
        ),
        queries=((share(ACCEPTED, DRAFTED, "method, position"), "{{method}} {{position}}"),),
        unit="percentunit",
        most=1,
    ),
    Panel(
        title=("Drafts per step (K), and why", "每步草稿数（K）及原因"),
        about=(
            "Steps per second. docs/draft_length.md says what the reasons mean.",
            "每秒步数。各原因的含义见 docs/draft_length.zh.md。",
        ),
        queries=((rate(LENGTHS, "k, reason"), "K={{k}}: {{reason}}"),),
        stacks=True,
    ),
    Panel(
        title=("Trees of drafts", "草稿树"),
        about=(
            "Drafts of a tree, how many of them follow each other, and how many are accepted. "
            "Nothing where drafts are chains.",
            "每棵树的草稿数、深度，以及被接受路径的长度。草稿为链时无数据。",
        ),
        queries=(
            (share(NODES, PATHS), "drafts"),
            (share(DEPTH, PATHS), "depth"),
            (share(TREE_ACCEPTED, PATHS), "accepted path"),
        ),
    ),
    Panel(
        title=("Accepted paths of trees", "树的被接受路径"),
        about=(
            "Per second: along the chain of the likeliest drafts, or to a draft beside it. Steps "
            "that are scheduled ahead do not tell.",
            "每秒条数：沿最可能草稿组成的主链，或走到旁边的草稿。异步调度时无从得知。",
        ),
        queries=((rate(PATHS, "path"), "{{path}}"),),
        stacks=True,
    ),
    Panel(
        title=("Steps by graph, and why without one", "各步使用的图，以及没有图的原因"),
        about=(
            "Steps per second. Nothing where the engine has no graphs, as on a CPU.",
            "每秒步数。引擎没有图时（例如 CPU 上）无数据。",
        ),
        queries=(
            (rate(f"{SPEC}graph_steps_total", "graph, reason"), "{{graph}} {{reason}}"),
            (rate(f"{SPEC}draft_graph_steps_total", "graph"), "draft: {{graph}}"),
        ),
    ),
    Panel(
        title=("Share of a step's time", "占每步时间的比例"),
        about=(
            "Time of the host; a device works on meanwhile.",
            "主机侧的时间；设备可能仍在工作。",
        ),
        queries=((share(VERIFICATION, STEP), "verification"), (share(DRAFTING, STEP), "drafting")),
        unit="percentunit",
        most=1,
    ),
    Panel(
        title=("Time of a step", "每步时间"),
        about=("Of the host, in the model runner.", "主机侧在模型运行器中的时间。"),
        queries=((share(STEP, LENGTHS, "instance, engine"), "{{instance}} {{engine}}"),),
        unit="s",
    ),
    Panel(
        kind="state-timeline",
        title=("Drafting pauses", "起草暂停"),
        about=(
            "With draft_length adaptive: no drafts are made where they do not pay.",
            "draft_length 为 adaptive 时，草稿不划算就不再起草。",
        ),
        queries=((f"{SPEC}drafting_paused{HERE}", "{{instance}} {{engine}}"),),
        words=DRAFTS,
    ),
    Panel(
        title=("Alarms and pauses in ten minutes", "十分钟内的告警与暂停次数"),
        about=(
            "How often acceptance fell too low, and how often drafting paused.",
            "接受率变得过低的次数，以及暂停起草的次数。",
        ),
        queries=(
            (f"sum (increase({SPEC}acceptance_alarms_total{HERE}[10m]))", "alarms"),
            (f"sum (increase({SPEC}drafting_pauses_total{HERE}[10m]))", "pauses"),
        ),
    ),
    Panel(
        title=("Time between tokens", "token 间隔"),
        about=("Median and 95th percentile.", "中位数与第 95 百分位。"),
        queries=((quantile(0.5, ITL), "50%"), (quantile(0.95, ITL), "95%")),
        unit="s",
    ),
    Panel(
        title=("Time to the first token", "首 token 时间"),
        about=("Median and 95th percentile.", "中位数与第 95 百分位。"),
        queries=((quantile(0.5, TTFT), "50%"), (quantile(0.95, TTFT), "95%")),
        unit="s",
    ),
)
TITLE = ("Speculative decoding: vllm-ascend-spec", "投机推理：vllm-ascend-spec")


def targets(panel: Panel) -> list[dict[str, Any]]:
    """Return a panel's queries."""
    return [
        {"datasource": DATASOURCE, "refId": chr(65 + i), "expr": expr, "legendFormat": legend}
        for i, (expr, legend) in enumerate(panel.queries)
    ]


def field_config(panel: Panel, language: int) -> dict[str, Any]:
    """Return how a panel's numbers are shown."""
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.most is not None:
        defaults["max"] = panel.most
    if panel.kind == "timeseries":
        mode = "normal" if panel.stacks else "none"
        fill = 30 if panel.stacks else 0
        defaults["custom"] = {"fillOpacity": fill, "stacking": {"group": "A", "mode": mode}}
    if panel.words:
        options = {
            str(number): {"text": texts[language], "color": colour, "index": number}
            for number, (texts, colour) in enumerate(panel.words)
        }
        defaults["mappings"] = [{"type": "value", "options": options}]
    return {"defaults": defaults, "overrides": []}


def options(panel: Panel) -> dict[str, Any]:
    """Return the options of a panel's kind."""
    if panel.kind == "stat":
        is_text = "rule" in panel.queries[0][1]
        calculation = {"calcs": ["lastNotNull"], "fields": "", "values": False}
        return {"reduceOptions": calculation, "textMode": "name" if is_text else "value"}
    return {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True}}


def variable(name: str, label: str) -> dict[str, Any]:
    """Return a choice of some values of a label."""
    query = f"label_values({LENGTHS}, {name})"
    return {
        "type": "query",
        "name": name,
        "label": label,
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": "values"},
        "definition": query,
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def dashboard(language: int) -> dict[str, Any]:
    """Return the dashboard in one language."""
    panels, x, y = [], 0, 0
    for number, panel in enumerate(PANELS, 1):
        place = {"x": x, "y": y, "w": panel.width, "h": panel.height}
        panels.append(
            {
                "id": number,
                "type": panel.kind,
                "title": panel.title[language],
                "description": panel.about[language],
                "datasource": DATASOURCE,
                "gridPos": place,
                "targets": targets(panel),
                "fieldConfig": field_config(panel, language),
                "options": options(panel),
            }
        )
        x += panel.width
        if x == WIDTH:
            x, y = 0, y + panel.height
    source = {"type": "datasource", "name": "datasource", "label": "Prometheus"}
    labels = (("Server", "服务")[language], ("Engine", "引擎")[language])
    return {
        "uid": f"vllm-ascend-spec-{LANGUAGES[language]}",
        "title": TITLE[language],
        "tags": ["vllm", "speculative decoding"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "5s",
        "time": {"from": "now-15m", "to": "now"},
        "templating": {
            "list": [
                {**source, "query": "prometheus"},
                variable("instance", labels[0]),
                variable("engine", labels[1]),
            ]
        },
        "panels": panels,
    }


def text(language: int) -> str:
    """Return a dashboard's file."""
    return json.dumps(dashboard(language), indent=1, ensure_ascii=False) + "\n"


FILES = (FOLDER / "speculation.json", FOLDER / "speculation-zh.json")

if __name__ == "__main__":
    for language, path in enumerate(FILES):
        path.write_text(text(language), encoding="utf-8")
