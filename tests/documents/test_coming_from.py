"""Pages for users of other servers: their models, moved to ringbatch, answer the old requests."""

import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import Final

import pytest
from documents.commands import printed, serving, write
from documents.pages import blocks, example, output_after, table
from tiers import first_of

from ringbatch.engine.config import unknown_keys
from ringbatch.engine.config.document import ALIASES
from ringbatch.engine.config.settings import ModelConfig, ServerConfig

SERVERS: Final = {
    "triton": "Triton",
    "fastapi": "FastAPI",
    "kserve": "KServe",
    "torchserve": "TorchServe",
    "litserve": "LitServe",
    "bentoml": "BentoML",
    "mosec": "mosec",
    "mlserver": "MLServer",
}
SETTINGS: Final = {field.name for kind in (ModelConfig, ServerConfig) for field in fields(kind)}
OTHER_WORDS: Final = {"load", "predict", "steps", *ALIASES}
"""Names of model files and chains, and KServe's spellings, which are accepted."""


def page(server: str) -> str:
    return f"docs/coming-from/{server}.md"


def same_but_ids(answer: str) -> str:
    return re.sub(r'"batchId":"[^"]*"', "", answer).strip()


@pytest.mark.parametrize("server", first_of(SERVERS, 1))
def test_the_moved_model_answers_the_request_of_the_old_one(server: str, tmp_path: Path) -> None:
    names = [block.name for block in blocks(page(server)) if block.mark == "example"]
    for name in names:
        if name.endswith(".py"):
            write(tmp_path, name, example(page(server), name))
    with serving(tmp_path, example(page(server), "serve")) as engine:
        for name in {"curl", "client.py"} & {*names}:
            command = example(page(server), name)
            if name == "client.py":
                write(tmp_path, name, command.replace("8080", str(engine.port)))
                command = f"{sys.executable} client.py"
            answer = printed(command, tmp_path, engine)
            assert same_but_ids(answer) == same_but_ids(output_after(page(server), name))
    assert (
        {"price.py", "serve"}
        < {*names}
        <= {*("price.py", "api.py", "routes.py", "serve", "curl", "client.py")}
    )


@pytest.mark.parametrize(("server", "name"), SERVERS.items(), ids=SERVERS)
def test_the_code_of_the_other_server_is_python(server: str, name: str) -> None:
    theirs = [b for b in blocks(page(server)) if b.mark == "shown" and b.language == "python"]
    assert theirs, name
    for block in theirs:
        compile(block.text, f"{name}'s model", "exec")


@pytest.mark.parametrize(("server", "name"), SERVERS.items(), ids=SERVERS)
def test_every_word_of_ringbatch_in_the_table_exists(server: str, name: str) -> None:
    for theirs, *_, ours in table(page(server), name):
        for word in re.findall(r"`([a-zA-Z_]+)(?: = [^`]+)?`", ours):
            known = SETTINGS | OTHER_WORDS | {"inputs", "outputs", "Model", "begin", "step"}
            assert word in known, f"{theirs}: {word}"


@pytest.mark.parametrize("server", ["triton", "torchserve", "litserve", "mosec"])
def test_the_table_repeats_the_hint_for_a_foreign_key(server: str) -> None:
    """A foreign key in a settings file is refused with a hint, which the table repeats."""
    hints = 0
    for theirs, ours in table(page(server), SERVERS[server]):
        for word in re.findall(r"`([a-zA-Z_]+)`", theirs):
            hint = re.search(r"is here (\w+)", unknown_keys.words(word, SETTINGS, listed=""))
            if hint and hint[1] in SETTINGS:
                hints += 1
                assert f"`{hint[1]}" in ours, f"{word}: {hint.string}"
    assert hints


def test_every_setting_in_a_hint_for_a_foreign_key_exists() -> None:
    for word, here in unknown_keys._ELSEWHERE.items():
        for name in re.findall(r"(?<![\w`])[a-z]+(?:_[a-z]+)+", here):
            assert name in SETTINGS, f"{word}: {here}"
        assert re.fullmatch("[a-z0-9]+", word), "as `_folded` writes it"
