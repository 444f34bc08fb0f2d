"""What a start refuses of the files and the group that the server's settings name."""

import os
from pathlib import Path
from typing import Any

import pytest

from ringbatch.engine.config.settings import Config, ModelConfig, ServerConfig
from ringbatch.engine.doctor import obstacles
from ringbatch.engine.doctor.facts import Facts
from ringbatch.engine.doctor.server_files import unusable


def lines(**settings: Any) -> list[str]:
    return [*unusable(ServerConfig(**settings))]


def test_a_file_that_can_be_made_or_appended_to_is_usable(tmp_path: Path) -> None:
    path = tmp_path / "payloads.jsonl"
    assert lines(payload_log=str(path)) == []
    assert not path.exists()
    path.touch()
    assert lines(payload_log=str(path)) == []
    assert lines(payload_log="http://127.0.0.1:9/payloads") == []
    assert lines() == []


def test_a_payload_log_without_a_directory_is_named(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "payloads.jsonl"
    assert lines(payload_log=str(path)) == [
        f"[server] payload_log: {path}: its directory does not exist; choose another file, or "
        "mend that"
    ]


def test_a_payload_log_that_is_a_directory_is_named(tmp_path: Path) -> None:
    assert lines(payload_log=str(tmp_path)) == [
        f"[server] payload_log: {tmp_path}: it is a directory; choose another file, or mend that"
    ]


@pytest.mark.parametrize(
    ("is_there", "words"),
    [
        (True, "this user may not write it"),
        (False, "this user may not make files in its directory"),
    ],
)
def test_a_payload_log_that_this_user_may_not_write_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool, words: str
) -> None:
    path = tmp_path / "payloads.jsonl"
    if is_there:
        path.touch()
    monkeypatch.setattr(os, "access", lambda _path, mode: not mode & os.W_OK)
    (line,) = lines(payload_log=str(path))
    assert line.startswith(f"[server] payload_log: {path}: {words};")


def test_an_authority_without_a_certificate_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text("no certificate")
    (line,) = lines(payload_log="https://log.example", payload_log_ca=path)
    assert line.startswith(f"[server] payload_log_ca: {path}: ")
    assert line.endswith("; name a file of certificates in PEM")


def test_a_group_that_the_machine_lacks_is_named() -> None:
    (line,) = lines(unix_socket="/run/prod.sock", unix_socket_group="no-such-group")
    assert line.startswith("[server] unix_socket_group: this machine has no group 'no-such-group';")
    assert lines(unix_socket="/run/prod.sock", unix_socket_group="root") == []


def test_a_check_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(obstacles, "gathered", lambda _: (Facts(), []))
    server = ServerConfig(payload_log=str(tmp_path))
    models = (ModelConfig(name="m", path="http://127.0.0.1:1"),)
    found = obstacles.outlook(Config(server=server, models=models)).obstacles
    assert any(line.startswith("[server] payload_log: ") for line in found)
