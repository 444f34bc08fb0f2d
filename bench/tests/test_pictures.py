"""Pictures of the documentation: made of the kept result, whole in themselves, and shown.

Tests bench/ringbatch/bench/report/picture.py.
"""

import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pictures
import pytest
from peers.servers import BENCH

from ringbatch.bench.report.result import Result

PAGE = (BENCH.parent / "docs" / "how-to" / "choose-settings.md").read_text()


def test_the_committed_pictures_are_made_from_the_kept_result() -> None:
    made = pictures.drawn(Result.from_json(pictures.RESULT.read_bytes()))
    assert {file: (pictures.FOLDER / file).read_text() for file in made} == made


@pytest.mark.parametrize("file", pictures.FILES.values())
def test_a_picture_needs_nothing_else_and_is_readable_in_light_and_dark(file: str) -> None:
    text = (pictures.FOLDER / file).read_text()
    assert text.count("http") == text.count('xmlns="http://www.w3.org/2000/svg"') == 1
    assert "prefers-color-scheme: dark" in text
    drawing = ElementTree.fromstring(text)
    ground = drawing.find("{*}rect")
    assert ground is not None
    assert (ground.get("class"), ground.get("width")) == ("ground", "559")
    assert len(text) < 20_000


def test_the_page_shows_them_with_the_command_that_makes_them() -> None:
    for file in pictures.FILES.values():
        assert f"(../pictures/{file})" in PAGE
    assert "python bench/pictures.py" in PAGE


def test_a_result_of_nothing_but_void_runs_makes_no_picture(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = Result.from_json(pictures.RESULT.read_bytes())
    file = tmp_path / "result.json"
    file.write_bytes(replace(result, points=()).as_json())
    monkeypatch.setattr(pictures, "FOLDER", tmp_path / "out")
    monkeypatch.setattr(sys, "argv", ["pictures.py", str(file)])
    assert pictures.main() == 2
    assert f"{file}: it has no figures for: Throughput against latency" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
