"""The how-to page of PyTorch, whose package only one step of CI has."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from documents.commands import printed, serving
from documents.pages import example

pytest.importorskip("torch", reason="torch is not installed")

PAGE: Final = "docs/how-to/serve-pytorch.md"


@pytest.mark.timeout(600)
def test_the_program_is_exported_and_answers(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", example(PAGE, "line.py")], cwd=tmp_path, check=True)
    with serving(tmp_path, example(PAGE, "serve")) as server:
        (row,) = json.loads(printed(example(PAGE, "curl"), tmp_path, server))["predictions"]
    assert len(row) == 2
