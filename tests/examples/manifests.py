"""Read the manifests of examples/, and find what is wrong with them.

Kubernetes' own kinds are checked against Kubernetes' own schemas (of the package
kubernetes-validate), strictly: an unknown field is a fault. The kinds of others are checked against
schemas/, and the pods in them as Kubernetes' PodTemplate.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
SCHEMAS = Path(__file__).parent / "schemas"
# The oldest that CCE's add-ons for inference take, and the newest that the schemas know.
KUBERNETES = ("1.28", kubernetes_validate.latest_version())
MANIFESTS = sorted([*EXAMPLES.glob("kubernetes/*.yaml"), EXAMPLES / "modelarts/lite_cluster.yaml"])
# Where pods stand in the kinds that are not Kubernetes' own.
PODS = {
    "LeaderWorkerSet": ("leaderTemplate", "workerTemplate"),
    "ModelServing": ("entryTemplate", "workerTemplate"),
}


def read(path: Path) -> list[dict[str, Any]]:
    """Return the documents of a YAML file."""
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def schema(name: str) -> Any:
    return json.loads((SCHEMAS / f"{name}.json").read_text())


def faults(document: Any, name: str) -> list[str]:
    """Return what a schema of ours finds, each with the place of the field."""
    validator = jsonschema.Draft202012Validator(schema(name))
    return [f"{place(error)}: {error.message}" for error in validator.iter_errors(document)]


def place(error: jsonschema.ValidationError) -> str:
    return ".".join(map(str, error.absolute_path))


def own_faults(document: dict[str, Any], version: str) -> list[str]:
    """Return what Kubernetes' own schemas find."""
    try:
        kubernetes_validate.validate(document, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return [f"{place(error)}: {error.message}"]
    return []


def pod_templates(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the pod templates of a document."""
    kind, spec = document["kind"], document.get("spec", {})
    if kind == "Deployment":
        yield spec["template"]
    holders = [spec.get("leaderWorkerTemplate", {}), *spec.get("template", {}).get("roles", ())]
    for holder in holders if kind in PODS else ():
        yield from (holder[name] for name in PODS[kind] if name in holder)


def problems(document: dict[str, Any]) -> list[str]:
    """Return everything that is wrong with a document."""
    kind = document["kind"]
    if kind not in PODS:
        return [fault for version in KUBERNETES for fault in own_faults(document, version)]
    found = faults(document, kind)
    for pod in pod_templates(document) if not found else ():
        wrapped = {"apiVersion": "v1", "kind": "PodTemplate", "template": pod}
        found += [fault for version in KUBERNETES for fault in own_faults(wrapped, version)]
    return found
