"""Obstacles to a start, out of all findings of the doctor."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ringbatch.engine.config.document import conclude
from ringbatch.engine.config.settings import Config, ModelConfig, ServerConfig
from ringbatch.engine.doctor import obstacles
from ringbatch.engine.doctor.case import Check
from ringbatch.engine.doctor.examination import judge
from ringbatch.engine.doctor.facts import (
    Door,
    Engines,
    Facts,
    Package,
    RunningEngine,
    SharedMemory,
    Software,
)
from ringbatch.engine.doctor.findings import Level
from ringbatch.engine.doctor.memory_checks import dev_shm
from ringbatch.engine.doctor.obstacles import decisive, incomplete, outlook, unreadable
from ringbatch.engine.doctor.software_checks import packages

CONFIG = Config(
    server=ServerConfig(name="prod", max_request_bytes=1 << 20, lane_bytes=1 << 30),
    models=(ModelConfig(name="m", path=Path("m.py")),),
)
FULL = SharedMemory(
    filesystem="tmpfs",
    size_bytes=16 << 30,
    free_bytes=1 << 20,
    free_files=1000,
    writable=True,
)


def engine(name: str) -> RunningEngine:
    return RunningEngine(
        name=f"/ringbatch.{name}.7.x", engine=name, pid=7, models=("a",), segment_bytes=15 << 30
    )


def levels(check: Check, facts: Facts) -> set[Level]:
    found = judge(decisive(facts, CONFIG, passed=False), CONFIG, (check,), asked=True)
    return {finding.level for finding in found}


@pytest.mark.parametrize(("name", "level"), [("prod", Level.WARNING), ("other", Level.ERROR)])
def test_memory_that_an_engine_of_the_same_name_holds_will_be_free(name: str, level: Level) -> None:
    facts = Facts(shared_memory=FULL, engines=Engines(running=(engine(name),)))
    assert levels(dev_shm, facts) == {level}


@pytest.mark.parametrize(
    ("version", "expected"), [("1.0", {Level.OK}), ("99.0", {Level.OK}), (None, {Level.ERROR})]
)
def test_a_package_of_another_release_does_not_end_a_start(
    version: str | None, expected: set[Level]
) -> None:
    own = Package(name="orjson", version=version, bounds=">=1,<2")
    software = Software(
        ringbatch="1",
        compiled=False,
        python=(3, 11, 1),
        implementation="CPython",
        packages=(own,),
    )
    assert levels(packages, Facts(software=software)) == expected


def test_a_file_that_this_user_may_not_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    models = (
        ModelConfig(name="a.b", path=Path("/m/secret.py")),
        ModelConfig(name="c", path=Path("/m/c.py"), warm_up_file=Path("/m/secret.json")),
        ModelConfig(name="d", path="http://127.0.0.1:1"),
    )
    monkeypatch.setattr(os, "access", lambda path, _mode: "secret" not in str(path))
    lines = unreadable(Config(models=models))
    assert [line.partition(": cannot be read; ")[0] for line in lines] == [
        '[models."a.b"] path: /m/secret.py',
        "[models.c] warm_up_file: /m/secret.json",
    ]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (("readme.txt",), ["there is neither a tokenizer.json nor an encoder, which may be"]),
        (("tokenizer.json",), ["there is a tokenizer.json, but no encoder"]),
        (("model.onnx",), ["there is an encoder, model.onnx, but no tokenizer.json"]),
        (("tokenizer.json", "model.onnx"), []),
        (("model.py",), ["there is no tokenizer.json"]),
        (("tokenizer.json", "generation_config.json"), ["neither a model.py nor a decoder"]),
        (("tokenizer.json", "model.py"), []),
    ],
)
def test_a_directory_that_cannot_be_a_model_is_refused_with_the_missing_files(
    tmp_path: Path, files: Sequence[str], expected: Sequence[str]
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in files:
        (folder / name).write_text("{}")
    document = {"models": {"m": {"path": str(folder)}}}
    lines = incomplete(conclude(document, source="test", base=tmp_path))
    assert len(lines) == len(expected)
    for line, words in zip(lines, expected, strict=True):
        assert line.startswith(f"[models.m] path: {folder}: ")
        assert words in line


def test_a_directory_without_a_model_is_an_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = conclude({"models": {"m": {"path": str(tmp_path)}}}, source="test", base=tmp_path)
    monkeypatch.setattr(obstacles, "gathered", lambda _: (Facts(), []))
    assert incomplete(config)[0] in outlook(config).obstacles


def test_a_directory_that_this_user_may_not_enter_is_not_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = conclude({"models": {"m": {"path": str(tmp_path)}}}, source="test", base=tmp_path)
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    assert incomplete(config) == []
    assert len(unreadable(config)) == 1


@pytest.mark.parametrize(("name", "is_held"), [("prod", True), ("other", False)])
def test_a_port_of_the_engine_that_goes_first_is_no_obstacle_and_named(
    monkeypatch: pytest.MonkeyPatch, name: str, is_held: bool
) -> None:
    holders = ((7, "ringbatch: supervisor"),)
    door = Door(key="port", host="::", port=8080, refusal="in use", taken=True, holders=holders)
    facts = Facts(doors=(door,), engines=Engines(running=(engine(name),)))
    monkeypatch.setattr(obstacles, "gathered", lambda _: (facts, []))
    found = outlook(CONFIG)
    named = [any("process 7" in line for line in lines) for lines in (found.held, found.obstacles)]
    assert named == [is_held, not is_held]


def test_only_the_port_of_http_is_passed() -> None:
    doors = tuple(Door(key=key, host="a", port=1) for key in ("port", "grpc_port", "control_port"))
    found = decisive(Facts(doors=doors), CONFIG, passed=True).doors
    assert found is not None
    assert [door.key for door in found] == ["grpc_port", "control_port"]
    assert decisive(Facts(doors=doors), CONFIG, passed=False).doors == doors
    assert decisive(Facts(), CONFIG, passed=True) == replace(Facts())
