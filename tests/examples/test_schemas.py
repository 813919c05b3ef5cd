"""Manifests and configurations fit their schemas, and one that does not is refused by field."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.examples import manifests
from tests.examples.manifests import EXAMPLES, MANIFESTS, SCHEMAS, faults, problems

OWN = {"ConfigMap", "Deployment", "PersistentVolumeClaim", "Pod", "Service"}
KINDS = {*OWN, *manifests.PODS}
# Other files, and the schema of each.
CONFIGURATIONS = {
    "modelarts/service.yaml": "modelarts_service",
    "modelarts/legacy/config.json": "modelarts_legacy",
    "kubernetes/pymotor/user_config.json": "pymotor_user_config",
    "kubernetes/pymotor/env.json": "pymotor_env",
}


def document(file: str, kind: str) -> dict[str, Any]:
    """Return a copy of the document of a kind."""
    (found,) = (d for d in manifests.read(EXAMPLES / file) if d["kind"] == kind)
    return copy.deepcopy(found)


def configuration(file: str) -> Any:
    return yaml.safe_load((EXAMPLES / file).read_text())


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_a_manifest_fits(path: Path) -> None:
    assert [problems(document) for document in manifests.read(path)] == [
        [] for _ in manifests.read(path)
    ]


def test_every_kind_is_there() -> None:
    assert {d["kind"] for path in MANIFESTS for d in manifests.read(path)} == KINDS


@pytest.mark.parametrize("file", CONFIGURATIONS)
def test_a_configuration_fits(file: str) -> None:
    assert faults(configuration(file), CONFIGURATIONS[file]) == []


@pytest.mark.parametrize("path", sorted(SCHEMAS.glob("*.json")), ids=lambda path: path.stem)
def test_a_schema_is_one_and_says_what_it_covers(path: Path) -> None:
    schema = json.loads(path.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    assert "ritten from" in schema["description"] or "documents" in schema["description"]


def container_of(found: dict[str, Any]) -> dict[str, Any]:
    pod = next(manifests.pod_templates(found))
    return pod["spec"]["containers"][0]


def break_(*keys: Any, value: Any = None) -> Callable[[dict[str, Any]], None]:
    """Return what sets a field of a document, or takes it away."""

    def change(found: dict[str, Any]) -> None:
        *path, last = keys
        for key in path:
            found = found[key]
        if value is None:
            del found[last]
        else:
            found[last] = value

    return change


LWS, SERVING = "kubernetes/leaderworkerset.yaml", "kubernetes/modelserving.yaml"
PLAIN = "kubernetes/deployment.yaml"
IN_LWS = ("spec", "leaderWorkerTemplate")


@pytest.mark.parametrize(
    ("file", "kind", "change", "named"),
    [
        (PLAIN, "Deployment", break_("spec", "selector"), "'selector' is a required"),
        (PLAIN, "Deployment", break_("spec", "replicas", value="one"), "spec.replicas"),
        (PLAIN, "Service", break_("spec", "ports", 0, "targetport", value=1), "'targetport' was"),
        (PLAIN, "ConfigMap", break_("data", "ASCEND_SPEC_TOKENS", value=3), "ASCEND_SPEC_TOKENS"),
        (PLAIN, "PersistentVolumeClaim", break_("spec", "access", value=[]), "'access' was"),
        (LWS, "LeaderWorkerSet", break_(*IN_LWS, "workerTemplate"), "'workerTemplate' is a"),
        (LWS, "LeaderWorkerSet", break_(*IN_LWS, "size", value=0), "leaderWorkerTemplate.size"),
        (LWS, "LeaderWorkerSet", break_(*IN_LWS, "restartPolicy", value="Always"), "restartPol"),
        (LWS, "LeaderWorkerSet", break_("spec", "size", value=2), "'size' was unexpected"),
        (SERVING, "ModelServing", break_("spec", "recoveryPolicy", value="Always"), "recoveryPol"),
        (
            SERVING,
            "ModelServing",
            break_("spec", "template", "roles", 0, "name", value="speculation-server"),
            "spec.template.roles.0.name",
        ),
        (
            SERVING,
            "ModelServing",
            break_("spec", "template", "roles", 0, "workerReplicas"),
            "'workerReplicas' is a required",
        ),
    ],
)
def test_a_broken_manifest_is_refused(
    file: str, kind: str, change: Callable[[dict[str, Any]], None], named: str
) -> None:
    broken = document(file, kind)
    change(broken)
    assert named in " ".join(problems(broken))


@pytest.mark.parametrize(
    ("file", "kind"),
    [(PLAIN, "Deployment"), (LWS, "LeaderWorkerSet"), (SERVING, "ModelServing")],
)
def test_a_broken_container_is_refused(file: str, kind: str) -> None:
    """In the kinds of others, too."""
    broken = document(file, kind)
    probe = container_of(broken)["startupProbe"]
    probe["failuresThreshold"] = probe.pop("failureThreshold")
    assert "startupProbe" in " ".join(problems(broken))
    assert "'failuresThreshold' was unexpected" in " ".join(problems(broken))


@pytest.mark.parametrize(
    ("file", "change", "named"),
    [
        ("modelarts/service.yaml", break_("port", value=80800), "port: 80800"),
        ("modelarts/service.yaml", break_("health", "startup", "url"), "'url' is a required"),
        ("modelarts/legacy/config.json", break_("model_type", value="PyTorch"), "model_type"),
        ("modelarts/legacy/config.json", break_("metrics", "speed", value=1), "metrics: 'speed'"),
        (
            "kubernetes/pymotor/user_config.json",
            break_("motor_deploy_config", "hybrid_pod_npu_num", value=17),
            "motor_deploy_config.hybrid_pod_npu_num: 17",
        ),
        (
            "kubernetes/pymotor/user_config.json",
            break_("motor_engine_union_config", "engine_config", "model"),
            "motor_engine_union_config.engine_config: 'model' is a required",
        ),
        ("kubernetes/pymotor/env.json", break_("version", value="v2.0"), "version: '2.0.0'"),
    ],
)
def test_a_broken_configuration_is_refused(
    file: str, change: Callable[[dict[str, Any]], None], named: str
) -> None:
    broken = configuration(file)
    change(broken)
    assert named in " ".join(faults(broken, CONFIGURATIONS[file]))
