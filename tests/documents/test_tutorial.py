"""The tutorial, followed to the letter in a fresh folder."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from documents.commands import printed, serving, write
from documents.pages import blocks, example, output_after
from serve.server import Server
from tiers import exhaustive

PAGE: Final = "docs/tutorial/index.md"
SETTINGS: Final = "ringbatch.toml"
BESIDE: Final = " --even-if-busy --duration-s 0.3 --max-lag-ms 60000"
"""Flags that make `bench` quick, and let it measure beside other tests."""
CONTROL: Final = ("--control-port", "0")

WaitUntil = Callable[..., object]


class Reader:
    """Reader who follows the page in a folder.

    Attributes:
        followed: the examples used so far.
    """

    def __init__(self, folder: Path) -> None:
        self.followed: set[str] = set()
        self._folder = folder

    def writes(self, name: str) -> None:
        write(self._folder, name, self._example(name))

    def adds(self, name: str, file: str) -> None:
        before = (self._folder / file).read_text()
        write(self._folder, file, before + "\n" + self._example(name))

    def runs(self, name: str, server: Server | None = None, more: str = "") -> str:
        return printed(self._example(name) + more, self._folder, server)

    @contextmanager
    def serves(self, name: str, *more: str) -> Iterator[Server]:
        with serving(self._folder, self._example(name), *more) as server:
            yield server

    @contextmanager
    def loads(self, server: Server) -> Iterator[subprocess.Popen[str]]:
        """Run the page's client; it stops at the end of the block."""
        source = self._example("client.py").replace("8080", str(server.port))
        program, script = self._example("client").split()
        assert (program, script) == ("python", "client.py")
        write(self._folder, script, source)
        client = subprocess.Popen(
            [sys.executable, script],
            cwd=self._folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            yield client
        finally:
            client.kill()
            client.communicate()

    def _example(self, name: str) -> str:
        self.followed.add(name)
        return example(PAGE, name)


def answers(client: subprocess.Popen[str]) -> dict[str, int]:
    """Press Enter in the client's terminal, and return how often it got each answer."""
    output, _ = client.communicate("\n")
    return {text: int(times) for text, times in re.findall(r"^(.+) (\d+) times$", output, re.M)}


def answered(server: Server, label: str) -> int:
    model = server.status().models.get(label)
    return 0 if model is None else model.answered


def shape(text: str) -> str:
    """Return an output with the same sign for every number, and single blanks."""
    return re.sub(r" +", " ", re.sub(r"[0-9a-f]{8}-[-0-9a-f]+|[\d.,]*\d", "#", text))


@exhaustive
@pytest.mark.timeout(600)
def test_the_tutorial_works_from_its_first_command_to_its_last(
    tmp_path: Path, wait_until: WaitUntil
) -> None:
    reader = Reader(tmp_path)
    reader.writes("train.py")
    reader.runs("train")
    checked = reader.runs("check").replace(str(tmp_path), "/home/me/tutorial")
    assert shape(checked).strip() == shape(output_after(PAGE, "check"))

    reader.writes("sample.json")
    with reader.serves("serve") as server:
        prediction = reader.runs("curl", server)
        assert shape(prediction) == shape(output_after(PAGE, "curl"))
        (minutes,) = json.loads(prediction)["predictions"]
        assert f"{minutes:.1f}" == "18.7"

    reader.writes(SETTINGS)
    assert "nothing would keep serve from starting" in reader.runs("check-settings")
    with reader.serves("serve-settings", *CONTROL) as server:
        with reader.loads(server) as client:
            wait_until(lambda: answered(server, "delivery") > 100, "a hundred answers")
            assert answers(client).keys() == {"18.7 minutes"}
        output = reader.runs("status", server)
        for line in output_after(PAGE, "status").splitlines():
            assert re.sub(r"(idle|size:).*", "", shape(line)) in shape(output)

        reader.runs("train-again")
        reader.adds("second version", SETTINGS)
        with reader.loads(server) as client:
            before = answered(server, "delivery")
            wait_until(lambda: answered(server, "delivery") > before, "an answer")
            assert reader.runs("reload", server).strip() == output_after(PAGE, "reload")
            wait_until(lambda: answered(server, "delivery") > 100, "answers of version 2")
            assert answers(client).keys() == {"18.7 minutes", "19.1 minutes"}
        assert json.loads(reader.runs("first-version", server))["predictions"] == [minutes]

        assert shape(reader.runs("metrics", server).split("\n", 2)[0]) == shape(
            output_after(PAGE, "metrics").splitlines()[0]
        )
        assert "delivery" in reader.runs("top", server)

    assert "# ringbatch bench: delivery" in reader.runs("bench", more=BESIDE)
    assert [*(tmp_path / "ringbatch-bench").glob("*.html")]
    units = reader.runs("units").splitlines()
    assert not set(output_after(PAGE, "units").splitlines()) - set(units)
    assert reader.followed == {block.name for block in blocks(PAGE) if block.mark == "example"}


def test_the_tutorial_has_its_files_in_working_order() -> None:
    compile(example(PAGE, "train.py"), "train.py", "exec")
    compile(example(PAGE, "client.py"), "client.py", "exec")
    json.loads(example(PAGE, "sample.json"))
    settings = tomllib.loads(example(PAGE, SETTINGS) + "\n" + example(PAGE, "second version"))
    assert settings["models"]["delivery"]["versions"].keys() == {"1", "2"}
