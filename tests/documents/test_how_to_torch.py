"""The how-to page of PyTorch, whose package only one step of CI has."""

import json
from pathlib import Path
from typing import Final

import pytest
from documents.commands import printed, serving, write
from documents.pages import example, output_after

pytest.importorskip("torch", reason="torch is not installed")

PAGE: Final = "docs/how-to/serve-pytorch.md"


@pytest.mark.timeout(600)
def test_the_program_is_exported_and_answers(tmp_path: Path) -> None:
    write(tmp_path, "line.py", example(PAGE, "line.py"))
    printed(example(PAGE, "export"), tmp_path)
    with serving(tmp_path, example(PAGE, "serve")) as server:
        (row,) = json.loads(printed(example(PAGE, "curl"), tmp_path, server))["predictions"]
    assert len(row) == len(json.loads(output_after(PAGE, "curl"))["predictions"][0]) == 2
