"""The how-to page of text generators: its files and its commands, to the letter."""

import ast
import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest
from documents.commands import printed, serving, write
from documents.pages import blocks, example, output_after, section, table, text_of
from serve.server import Server

from ringbatch.frontend.generation import completion_bodies
from ringbatch.shm.texts import GENERATOR_FILES, GENERATOR_MODEL

PAGE: Final = "docs/how-to/serve-a-text-generator.md"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("generator")
    write(folder, "make.py", example(PAGE, "make.py"))
    first, make = example(PAGE, "make").splitlines()
    assert first.startswith("pip install")
    printed(make, folder)
    write(folder / "writer", "model.py", example(PAGE, "model.py"))
    with serving(folder, example(PAGE, "serve")) as started:
        yield started


@pytest.mark.parametrize("name", ["completion", "chat", "choices"])
def test_answers_are_those_of_the_page(server: Server, tmp_path: Path, name: str) -> None:
    found = printed(example(PAGE, name), tmp_path, server)
    assert without_ids(found) == without_ids(output_after(PAGE, name))


def without_ids(text: str) -> str:
    return re.sub(r'"id":"[a-z]+-[^"]*"|"created":[^,]*', "", text).strip()


@pytest.mark.skipif(find_spec("openai") is None, reason="not installed: openai")
def test_the_program_of_the_page_prints_the_text_up_to_its_stop(
    server: Server, tmp_path: Path
) -> None:
    program = example(PAGE, "ask.py").replace("127.0.0.1:8080", f"127.0.0.1:{server.port}")
    write(tmp_path, "ask.py", program)
    assert printed("python ask.py", tmp_path) == "take one step at the "


def test_a_seed_makes_the_same_text_of_a_prompt(server: Server, tmp_path: Path) -> None:
    command = example(PAGE, "completion").replace('"temperature": 0', '"temperature": 2, "seed": 7')
    texts = {json.loads(printed(command, tmp_path, server))["choices"][0]["text"] for _ in range(2)}
    assert len(texts) == 1


def test_the_model_file_is_short_and_the_long_one_is_python() -> None:
    assert len(example(PAGE, "model.py").splitlines()) <= 40
    _export, long = [block.text for block in blocks(PAGE) if block.mark == "shown"]
    ast.parse(long)


def test_files_and_tensors_of_the_page_are_those_of_the_code() -> None:
    files = {row[0].strip("`") for row in table(PAGE, "file")}
    assert {*GENERATOR_FILES, GENERATOR_MODEL} <= files
    named = {name for row in table(PAGE, "tensor") for name in re.findall(r"`(\w+)`", row[0])}
    assert named == {"input_ids", "max_tokens", "seed", *completion_bodies.RANGES}


def test_members_of_the_page_are_those_of_the_code() -> None:
    members = {*completion_bodies.IN_COMPLETIONS, *completion_bodies.IN_CHATS}
    words = section(PAGE, "What requests may ask")
    named = {*re.findall(r"`(\w+)`", words)} - {"type", "text"}
    assert named <= members
    assert f"`max_tokens` is {completion_bodies.DEFAULT_TOKENS} by default" in text_of(PAGE)
