"""A wrong option on the command line is reported as argparse reports any other."""

from __future__ import annotations

import argparse
import json
import socket
from pathlib import Path

import pytest

from tests.config.checkpoints import (
    edit_tensors,
    to_speculators,
    write_checkpoint,
    write_eagle,
    write_eagle3,
)
from vllm_ascend_spec.hooks import parser_hook as patch


def make_parser() -> argparse.ArgumentParser:
    """Return a parser with the few options of ``vllm serve`` that are checked."""
    parser = argparse.ArgumentParser(prog="vllm serve")
    parser.add_argument("model_tag", nargs="?")
    parser.add_argument("--model", default="org/default")
    parser.add_argument("--speculative-config", type=json.loads)
    parser.add_argument("--additional-config", type=json.loads, default={})
    parser.add_argument("--load-format", default="auto")
    parser.add_argument("--host")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--uds")
    return parser


@pytest.fixture
def right(tmp_path: Path) -> list[str]:
    """Return a right command line."""
    target = write_checkpoint(tmp_path / "target")
    folder = str(write_eagle(tmp_path / "eagle"))
    spec = {"method": "eagle", "model": folder, "num_speculative_tokens": 3}
    return [str(target), "--speculative-config", json.dumps(spec)]


WRONG = ["org/target", "--speculative-config", '{"method": "telepathy"}']


def refusal(
    parser: argparse.ArgumentParser, command: list[str], capsys: pytest.CaptureFixture[str]
) -> str:
    """Return the one line that argparse prints below its usage when it gives up."""
    with pytest.raises(SystemExit) as raised:
        parser.parse_args(command)
    assert raised.value.code == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if "error: " in line]
    (line,) = lines
    return line.partition("error: ")[2]


def test_stock_fault_and_patch(capsys: pytest.CaptureFixture[str]) -> None:
    parser = make_parser()
    assert parser.parse_args(WRONG).speculative_config == {"method": "telepathy"}
    patch.apply(parser)
    message = refusal(parser, WRONG, capsys)
    assert message.startswith("speculative_config.method='telepathy': ")
    assert "'eagle'" in message


def test_right_command_line_parses_as_before(right: list[str]) -> None:
    stock = make_parser().parse_args(right)
    parser = make_parser()
    patch.apply(parser)
    assert parser.parse_args(right) == stock


def test_head_of_the_speculators_library_as_the_model_is_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = write_checkpoint(tmp_path / "target", num_hidden_layers=12)
    head = to_speculators(write_eagle3(tmp_path / "head"), str(target))
    parser = make_parser()
    patch.apply(parser)
    assert parser.parse_args([str(head)]).speculative_config is None
    edit_tensors(head, lambda entries: entries.pop("fc.weight"))
    message = refusal(parser, [str(head)], capsys)
    assert message.startswith("speculative_config.model=")
    assert "no tensor fc.weight" in message


def test_a_page_of_a_server_without_http_is_refused(
    right: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    parser = make_parser()
    parser.add_argument("--grpc", action="store_true")
    patch.apply(parser)
    wanted = [*right, "--additional-config", '{"ascend_spec": {"spec_page": true}}']
    assert parser.parse_args(wanted)
    message = refusal(parser, [*wanted, "--grpc"], capsys)
    assert message.startswith("additional_config.ascend_spec.spec_page=True: has no effect here")


def test_a_page_of_another_node_is_a_warning(
    right: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes of a group are given the same options."""
    said: list[str] = []
    monkeypatch.setattr(patch, "log_once", lambda _level, text: said.append(text))
    parser = make_parser()
    parser.add_argument("--headless", action="store_true")
    patch.apply(parser)
    wanted = [*right, "--additional-config", '{"ascend_spec": {"spec_page": true}}']
    parser.parse_args([*right, "--headless"])
    parser.parse_args(wanted)
    assert said == []
    parser.parse_args([*wanted, "--headless"])
    (text,) = said
    assert text.startswith("additional_config.ascend_spec.spec_page=True has no effect with --head")


def test_unknown_arguments_are_still_returned(right: list[str]) -> None:
    parser = make_parser()
    patch.apply(parser)
    assert parser.parse_known_args([*right, "--other"])[1] == ["--other"]


def test_unknown_arguments_are_still_refused(
    right: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    parser = make_parser()
    patch.apply(parser)
    assert "--other" in refusal(parser, [*right, "--other"], capsys)


def test_applying_twice_reports_once(right: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    parser = make_parser()
    patch.apply(parser)
    patch.apply(parser)
    parser.parse_args(right)
    refusal(parser, WRONG, capsys)


def test_subcommand_is_checked(right: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main = argparse.ArgumentParser(prog="vllm")
    serve = main.add_subparsers().add_parser("serve", parents=[make_parser()], add_help=False)
    patch.apply(serve)
    assert main.parse_args(["serve", *right]).model_tag == right[0]
    assert "telepathy" in refusal(main, ["serve", *WRONG], capsys)


def test_vllms_own_parser_is_checked(right: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser(parents=[make_parser()], add_help=False)
    patch.apply(parser)
    assert parser.parse_args(right).model_tag == right[0]
    assert "telepathy" in refusal(parser, WRONG, capsys)


def test_our_own_options_are_checked(right: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    parser = make_parser()
    patch.apply(parser)
    command = [*right, "--additional-config", '{"ascend_spec": {"draft_lop": 1}}']
    assert refusal(parser, command, capsys).startswith("additional_config.ascend_spec.draft_lop=1")


def test_port_that_is_taken_is_refused(
    right: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    parser = make_parser()
    patch.apply(parser)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        taken = [*right, "--host", "127.0.0.1", "--port", str(server.getsockname()[1])]
        assert refusal(parser, taken, capsys).startswith("--port=")
        # A server on a unix socket has no port.
        parser.parse_args([*taken, "--uds", "/run/vllm.sock"])


def test_parser_without_a_port_is_checked_too(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--speculative-config", type=json.loads)
    parser.set_defaults(additional_config={}, load_format="auto")
    patch.apply(parser)
    assert parser.parse_args(["org/target"]).model == "org/target"
    assert "telepathy" in refusal(parser, WRONG, capsys)


def test_folders_are_tried(
    right: list[str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path / "file"))
    parser = make_parser()
    parser.add_argument("--enforce-eager", action="store_true")
    patch.apply(parser)
    assert refusal(parser, right, capsys).startswith("VLLM_CACHE_ROOT=")
    parser.parse_args([*right, "--enforce-eager"])
    # As vLLM does, to learn the defaults.
    parser.parse_args([])
