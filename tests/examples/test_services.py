"""What the examples run: the command, the port, the health checks, the models; and NPUs' rules."""

from __future__ import annotations

import json
import shlex
import stat
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from vllm.utils.argparse_utils import FlexibleArgumentParser

from examples.modelarts import start
from tests.docs.person import environment, run
from tests.e2e.guides import CURL
from tests.examples import services
from tests.examples.manifests import EXAMPLES, MANIFESTS, read
from tests.examples.services import MODELARTS, SERVICES, STAND_INS, Service
from tests.zoo import MODELS, TARGET
from vllm_ascend_spec.config.device import Device
from vllm_ascend_spec.config.resolved import SpecConfig
from vllm_ascend_spec.devices import cpu, npu
from vllm_ascend_spec.hooks import preflight
from vllm_ascend_spec.methods.registry import BUILT_IN
from vllm_ascend_spec.upstream.server import make_arg_parser, validate_parsed_serve_args

HEALTH = "/health"
WITH_API = [service for service in SERVICES if service.container and not service.headless]
EACH = pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)
ENV_FILES = {path.stem: path for path in sorted((MODELARTS / "env").glob("*.env"))}
PYMOTOR = EXAMPLES / "kubernetes" / "pymotor"


@cache
def parser() -> FlexibleArgumentParser:
    return make_arg_parser(FlexibleArgumentParser())


def parse(words: Sequence[str]) -> Any:
    """Return what vLLM's parser makes of a command; our checks are in it."""
    args = parser().parse_args(list(words[2:]))
    validate_parsed_serve_args(args)
    return args


@cache
def args_of(name: str) -> Any:
    """Return the parsed command of a service."""
    return parse(next(service for service in SERVICES if service.name == name).command())


def resolve(words: Sequence[str], device: Device, monkeypatch: pytest.MonkeyPatch) -> SpecConfig:
    """Check a command as an engine on a device does."""
    monkeypatch.setattr(preflight, "find_device", lambda: device)
    found = preflight.resolve_args(parse(words))
    assert found is not None
    return found


def device_of(service: Service) -> Device:
    return cpu.DEVICE if service.name.startswith("deployment_cpu") else npu.DEVICE


@EACH
def test_the_command_is_right_on_its_device(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = resolve(service.command(), device_of(service), monkeypatch)
    variables = service.variables
    assert found.method == variables["ASCEND_SPEC_METHOD"]
    assert found.is_lossless


def test_a_rule_of_the_npu_holds_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The check above fails where an NPU refuses, and a CPU need not."""
    settings = {**services.env_file(ENV_FILES["suffix"]), "ASCEND_SPEC_TOKENS": "16"}
    many = Service("many", ("python3", f"{services.SCRIPTS}start.py"), settings, (), {})
    resolve(many.command(), cpu.DEVICE, monkeypatch)
    with pytest.raises(SystemExit):
        resolve(many.command(), npu.DEVICE, monkeypatch)
    assert "num_speculative_tokens=16: valid: " in capsys.readouterr().err


@EACH
def test_models_are_mounted(service: Service) -> None:
    for name in ("ASCEND_SPEC_MODEL", "ASCEND_SPEC_DRAFT"):
        path = service.variables.get(name)
        assert path is None or str(Path(path).parent) in service.mounts, name


@EACH
def test_without_its_models_it_says_so(service: Service) -> None:
    result = service.run()
    assert result.returncode == 2
    assert "ASCEND_SPEC_MODEL='/home/mind/model/target'; valid: a folder" in result.stderr


@pytest.mark.parametrize("service", WITH_API, ids=lambda service: service.name)
def test_probes_ask_the_server(service: Service) -> None:
    port = args_of(service.name).port
    (listed,) = service.container["ports"]
    assert (listed["name"], listed["containerPort"]) == ("http", port)
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        asked = service.container[probe]["httpGet"]
        assert asked["path"] == HEALTH
        assert asked["port"] in ("http", port)
    resources = service.container["resources"]
    npus = [{n: v for n, v in resources[kind].items() if "/" in n} for kind in resources]
    # Kubernetes refuses extended resources whose request is not the limit.
    assert npus[0] == npus[1]
    assert bool(npus[0]) != service.name.startswith("deployment_cpu")


def test_as_many_npus_as_the_model_is_split_over() -> None:
    for service in services.in_manifests():
        args = args_of(service.name)
        limits = service.container["resources"]["limits"]
        npus = sum(int(number) for name, number in limits.items() if "/" in name)
        assert npus * args.nnodes in (args.tensor_parallel_size, 0), service.name


SERVING = [path for path in MANIFESTS if path.name != "models.yaml"]


@pytest.mark.parametrize("path", SERVING, ids=lambda path: path.name)
def test_a_service_reaches_the_port(path: Path) -> None:
    (front,) = (document for document in read(path) if document["kind"] == "Service")
    (port,) = front["spec"]["ports"]
    assert port["targetPort"] in ("http", 8080)
    # Kubernetes makes variables of a service's name; these would be settings of the scripts.
    assert not front["metadata"]["name"].upper().replace("-", "_").startswith("ASCEND_SPEC")


@pytest.mark.parametrize("name", ["deployment", "deployment_cpu"])
def test_models_get_onto_the_volume_that_is_served(name: str) -> None:
    """By a pod that writes to the claim which the servers read."""
    (pod,) = read(EXAMPLES / "kubernetes" / "models.yaml")
    documents = {found["kind"]: found for found in read(EXAMPLES / "kubernetes" / f"{name}.yaml")}
    claim, served = documents["PersistentVolumeClaim"], documents["Deployment"]["spec"]["template"]
    assert "ReadWriteMany" in claim["spec"]["accessModes"]
    (volume,) = pod["spec"]["volumes"]
    (mount,) = pod["spec"]["containers"][0]["volumeMounts"]
    assert volume["persistentVolumeClaim"] == {"claimName": claim["metadata"]["name"]}
    assert mount == {"name": volume["name"], "mountPath": "/models"}
    assert served["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] == volume["name"]


def test_a_worker_of_a_group_joins_the_leader() -> None:
    leader, worker = (s for s in SERVICES if s.name.startswith("leaderworkerset"))
    first, second = args_of(leader.name), args_of(worker.name)
    assert (first.node_rank, second.node_rank) == (0, 1)
    assert (first.headless, second.headless) == (False, True)
    for name in ("nnodes", "master_addr", "master_port", "tensor_parallel_size"):
        assert getattr(first, name) == getattr(second, name), name
    assert first.speculative_config == second.speculative_config
    assert worker.container.keys().isdisjoint({"ports", "startupProbe", "livenessProbe"})


def test_the_form_asks_the_server_as_the_guide_does() -> None:
    filled, service = services.form(), services.in_form()
    args = args_of(service.name)
    assert filled["port"] == args.port
    assert (filled["protocol"] == "HTTPS") == (args.ssl_certfile is not None)
    assert f"{filled['path']}" in CURL
    for probe in filled["health"].values():
        assert (probe["url"], probe["port"]) == (HEALTH, args.port)
    mounts = [f"{m['mount']}/{folder}" for m in filled["models"] for folder in m["folders"]]
    for name in ("ASCEND_SPEC_MODEL", "ASCEND_SPEC_DRAFT"):
        assert service.variables[name] in mounts


@pytest.mark.parametrize("method", ENV_FILES)
def test_a_file_of_settings_is_the_script_of_its_name(method: str) -> None:
    """So what is tried with the scripts, in tests/e2e/test_modelarts.py, holds for the files."""
    (service,) = (s for s in SERVICES if s.name == f"{method}.env")
    result = run("sh", str(MODELARTS / f"{method}.sh"), **settings_of(method), PRINT_ONLY="")
    assert result.returncode == 0, result.stderr
    assert shlex.split(result.stdout) == service.command()


def settings_of(method: str) -> dict[str, str]:
    models = {f"ASCEND_SPEC_{name}": path for name, path in STAND_INS[method].items()}
    return {**models, "ASCEND_SPEC_PRINT_ONLY": "true"}


def test_there_is_a_file_for_each_script() -> None:
    scripts = {path.stem for path in MODELARTS.glob("*.sh")} - {"lite_server"}
    assert set(ENV_FILES) == scripts == set(STAND_INS)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_config_maps_are_files_of_settings(path: Path) -> None:
    """Another method's file can take the place of a manifest's ConfigMap."""
    for document in read(path):
        if document["kind"] == "ConfigMap":
            assert document["data"] == services.env_file(ENV_FILES["eagle"])


def program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IEXEC)


def lite_server(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the script with a docker that prints its arguments, one a line."""
    program(folder / "docker", '#!/bin/sh\nprintf "%s\\n" "$@"\n')
    plain = environment(**more)
    return subprocess.run(
        ["sh", str(MODELARTS / "lite_server.sh"), *words],
        env={**plain, "PATH": f"{folder}:{plain['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_lite_server_starts_the_image(tmp_path: Path) -> None:
    more = {"IMAGE": "image:1", "ASCEND_SPEC_API_KEY": "SECRET", "ASCEND_SPEC_METHOD": ""}
    result = lite_server(tmp_path, str(tmp_path), "mtp", "2", "3", **more)
    assert result.returncode == 0, result.stderr
    words = result.stdout.splitlines()
    assert (words[0], words[-1]) == ("run", "image:1")
    assert {"/dev/davinci2", "/dev/davinci3", "/dev/davinci_manager", "--net=host"} <= set(words)
    assert "/dev/davinci0" not in words
    assert "ASCEND_SPEC_ARG_TENSOR_PARALLEL_SIZE=2" in words
    assert words[words.index("--env-file") + 1] == str(ENV_FILES["mtp"])
    assert f"{tmp_path}:/home/mind/model:ro" in words
    assert "SECRET" not in result.stdout
    assert "ASCEND_SPEC_API_KEY" in words
    # An empty one is none, and would take the file's away.
    assert "ASCEND_SPEC_METHOD" not in words


def test_lite_server_hands_every_setting_on(tmp_path: Path) -> None:
    """By name, so that docker takes the value from the environment."""
    names = [*start.SETTINGS, "ARG_MAX_MODEL_LEN", "ARG_TENSOR_PARALLEL_SIZE"]
    given = {f"ASCEND_SPEC_{name}": "a value\nof two lines" for name in names}
    given["ASCEND_SPEC_ARG_TENSOR_PARALLEL_SIZE"] = "1"
    result = lite_server(tmp_path, str(tmp_path), "eagle", "0", "1", **given)
    words = result.stdout.splitlines()
    handed = {words[place + 1] for place, word in enumerate(words) if word == "--env"}
    assert handed == {*given, "ASCEND_SPEC_ARG_TENSOR_PARALLEL_SIZE=1"}
    assert "a value" not in result.stdout
    # The last one counts.
    files = words.index("--env-file")
    assert words[files + 2 : files + 4] == ["--env", "ASCEND_SPEC_ARG_TENSOR_PARALLEL_SIZE=1"]


def test_the_start_script_knows_every_method() -> None:
    """But those that serve nobody: a class of one's own, and hidden states to train with."""
    not_served = {"custom_class", "extract_hidden_states"}
    assert start.METHODS.keys() - {"none"} == BUILT_IN.keys() - not_served
    for name, has_draft in start.METHODS.items():
        if name != "none" and has_draft is not None:
            record = BUILT_IN[name]
            assert has_draft == ("model" in record.required), name


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "usage: lite_server.sh MODELS METHOD"),
        (("/nowhere", "mtp"), "no folder /nowhere"),
        (("/", "egale"), "env/egale.env"),
    ],
)
def test_lite_server_says_what_is_wrong(
    words: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    result = lite_server(tmp_path, *words)
    assert result.returncode == 2
    assert result.stdout == ""
    assert message in result.stderr


def test_the_legacy_script_serves_https_from_its_folder(tmp_path: Path) -> None:
    text = (MODELARTS / "legacy" / "run_vllm.sh").read_text()
    text = text.replace(f"{services.ENTRY} ", "").replace(services.SCRIPTS, f"{MODELARTS}/")
    program(tmp_path / "run_vllm.sh", text)
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).touch()
    (tmp_path / "target").symlink_to(TARGET)
    (tmp_path / "draft").symlink_to(MODELS / "eagle")
    result = run(str(tmp_path / "run_vllm.sh"), ASCEND_SPEC_PRINT_ONLY="true")
    assert result.returncode == 0, result.stderr
    args = parse(shlex.split(result.stdout))
    assert args.ssl_certfile == str(tmp_path / "cert.pem")
    assert args.speculative_config["model"] == str(tmp_path / "draft")
    (api,) = json.loads((MODELARTS / "legacy" / "config.json").read_text())["apis"]
    assert api["url"] in CURL


def engine_config() -> dict[str, Any]:
    config = json.loads((PYMOTOR / "user_config.json").read_text())
    mount = config["motor_deploy_config"]["weight_mount_path"]
    engine: dict[str, Any] = config["motor_engine_union_config"]["engine_config"]
    assert engine["model"].startswith(mount)
    assert engine["speculative_config"]["model"].startswith(mount)
    npus = config["motor_deploy_config"]["hybrid_pod_npu_num"]
    assert npus == engine["tensor_parallel_size"] * engine["data_parallel_size"]
    return {
        **engine,
        "model": TARGET,
        "speculative_config": {**engine["speculative_config"], "model": str(MODELS / "eagle")},
    }


def test_pymotors_engine_is_right_on_an_npu(monkeypatch: pytest.MonkeyPatch) -> None:
    found = resolve(services.pymotor_command(engine_config()), npu.DEVICE, monkeypatch)
    assert found.method == "eagle"
    assert found.is_lossless


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pipeline_parallel_size": 2}, "--pipeline-parallel-size=2"),
        (
            {"additional_config": {"rejection_sampler_config": {"enable_entropy_verify": True}}},
            "enable_entropy_verify",
        ),
    ],
)
def test_pymotors_engine_is_refused(
    change: Mapping[str, Any],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = services.pymotor_command({**engine_config(), **change})
    with pytest.raises(SystemExit):
        resolve(words, npu.DEVICE, monkeypatch)
    assert message in capsys.readouterr().err
