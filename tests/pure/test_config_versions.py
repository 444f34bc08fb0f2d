"""Versions of models in configurations."""

import tomllib
from pathlib import Path

import pytest
from config_documents import BASE, WHOLE_64, concluded, problems

from ringbatch.engine.config.description import describe
from ringbatch.engine.config.document import conclude

VERSIONS = """
[models.m]
maxLatency = 3
workers = 2
default_version = "2"
[models.m.versions.1]
path = "a.py"
[models.m.versions.2]
path = "b.py"
max_latency_ms = 4
[models.m.versions."1.5-rc"]
path = "c.onnx"
device = "cuda:0"
[models.n]
path = "a.py"
"""


def test_a_version_inherits_unset_keys_from_its_model() -> None:
    config = concluded(VERSIONS)
    found = [
        (m.name, m.version, Path(m.path).name, m.max_latency_ms, m.workers) for m in config.models
    ]
    assert found == [
        ("m", "1", "a.py", 3.0, 2),
        ("m", "2", "b.py", 4.0, 2),
        ("m", "1.5-rc", "c.onnx", 3.0, 2),
        ("n", "1", "a.py", 500.0, 1),
    ]
    assert [m.default for m in config.models] == [False, True, False, False]
    again = tomllib.loads(describe(config))
    assert conclude(again, source="it", base=BASE, is_file=lambda _: True) == config


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            '[models.m]\npath = "a.py"\nworkers = 0\n[models.m.versions.1]\n[models.m.versions.2]',
            f"[models.m] workers: found 0, {WHOLE_64}",
        ),
        (
            '[models.m.versions.1]\npath = "a.py"\nworkers = 0',
            f"[models.m.versions.1] workers: found 0, {WHOLE_64}",
        ),
        (
            "[models.m.versions.1]\nworkers = 1",
            "[models.m.versions.1] path: is missing; it must be the path of a model file, or the "
            "address of a model server, http://HOST:PORT or "
            "https://HOST:PORT, or a list of addresses",
        ),
        (
            '[models.m]\ndefault_version = "3"\n[models.m.versions.1]\npath = "a.py"',
            '[models.m] default_version: found "3", but it must be one of the versions, 1',
        ),
        (
            '[models.m]\npath = "a.py"\ndefault_version = "3"',
            '[models.m] default_version: found "3", but it must be 1, or versions must be given, '
            "each in a section of its own",
        ),
        (
            '[models.m.versions.1]\npath = "a.py"\ndefault_version = "1"',
            "[models.m.versions.1] default_version: is for all versions, in [models.m]",
        ),
        (
            '[models.m.versions."a/b"]\npath = "a.py"',
            '[models.m.versions] "a/b": found "a/b", but a version\'s name must be 1 to 64 '
            "letters, digits, dots, dashes or underscores, and not . or ..",
        ),
        (
            '[models.m]\npath = "a.py"\nversions = {}',
            "[models.m] versions: there is none; add a section with the name of one",
        ),
        (
            '[models.m]\npath = "a.py"\nversions = 3',
            "[models.m] versions: found 3, but it must be a table, with the header "
            "[models.m.versions.VERSION]",
        ),
    ],
)
def test_a_wrong_version_is_named_where_it_is_written(text: str, problem: str) -> None:
    assert problems(text) == [f"ringbatch.toml: {problem}"]
