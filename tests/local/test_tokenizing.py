"""Requests whose tokens a thread makes: each ends once, whatever happens meanwhile."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from frontend_harness import FrontendHarness
from text_models import LIMIT, VOCABULARY, tokens, write_directory

from ringbatch.frontend.codec.outcome import InternalError
from ringbatch.frontend.request.tokenizing import Tokenizing
from ringbatch.frontend.texts.rows import Given
from ringbatch.frontend.texts.tokenizing import QUICK_CHARACTERS, TextModel, Tokenized
from ringbatch.shm.errors import InvalidRequest, ModelNotReady, Overloaded
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.tallies import CLIENT_GONE
from ringbatch.shm.tensor import Tensor
from ringbatch.shm.texts import TEXT, Tokens


class Story:
    """A request, and what becomes of it."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.told: list[Any] = []
        self._refuses = refuses
        self.may_go_on = threading.Event()
        endings = SimpleNamespace(ended=lambda _tally, code, _ns: self.told.append(code))
        engine: Any = SimpleNamespace(endings=endings)
        model = SimpleNamespace(spec=SimpleNamespace(name="m"))
        task: Any = SimpleNamespace(tally=None, accepted_ns=0, model=model, fail=self._failed)
        self.call: Tokenizing[Any] = Tokenizing(engine, task, self._send)

    def _failed(self, _engine: Any, error: Exception, *_: Any) -> None:
        self.told.append(type(error))

    def _send(self, found: Tokenized) -> Any:
        if self._refuses:
            raise Overloaded
        self.told.append(found)
        return SimpleNamespace(abandon=lambda: self.told.append("abandoned"))

    def tokenized(self, error: Exception | None = None) -> Callable[[], Tokenized]:
        def work() -> Tokenized:
            self.may_go_on.wait()
            if error is not None:
                raise error
            return TOKENIZED

        return work


TOKENIZED = Tokenized((), None)


def run(story: Story, work: Callable[[], Tokenized], meanwhile: Callable[[], object]) -> None:
    """Begin; do something before the thread goes on; and wait until all of it has been told."""

    async def begun() -> None:
        with ThreadPoolExecutor(1) as thread:
            story.call.begin(work, thread)
            meanwhile()
            story.may_go_on.set()
            while thread._work_queue.qsize():
                await asyncio.sleep(0)
            await asyncio.get_running_loop().run_in_executor(thread, lambda: None)
        for _ in range(3):
            await asyncio.sleep(0)

    asyncio.run(begun())


def nothing() -> None:
    """What most do meanwhile."""


def test_tokens_go_on_their_way() -> None:
    story = Story()
    run(story, story.tokenized(), nothing)
    assert story.told == [TOKENIZED]
    story.call.abandon()
    assert story.told == [TOKENIZED, "abandoned"]


def test_who_leaves_before_there_are_tokens_is_sent_nowhere() -> None:
    story = Story()
    run(story, story.tokenized(), story.call.abandon)
    assert story.told == [CLIENT_GONE]
    story.call.abandon()
    assert story.told == [CLIENT_GONE]


@pytest.mark.parametrize(
    ("error", "told"),
    [(InvalidRequest("long"), InvalidRequest), (RuntimeError("defect"), InternalError)],
)
@pytest.mark.parametrize("leaves", [False, True])
def test_what_a_thread_raises_is_told_once(error: Exception, told: Any, leaves: bool) -> None:
    story = Story()
    run(story, story.tokenized(error), story.call.abandon if leaves else nothing)
    assert story.told == ([CLIENT_GONE] if leaves else [told])
    story.call.abandon()
    assert len(story.told) == 1


def test_what_cannot_be_sent_is_told() -> None:
    story = Story(refuses=True)
    run(story, story.tokenized(), nothing)
    story.call.abandon()
    assert story.told == [Overloaded]


def spec_of(folder: Path, **changes: Any) -> ModelSpec:
    """A model of texts as the table has it."""
    import hashlib

    content = (folder / "tokenizer.json").read_bytes()
    digest = hashlib.blake2b(content, digest_size=16).hexdigest()
    fields: dict[str, Any] = {
        "path": str(folder / "tokenizer.json"),
        "digest": digest,
        "limit": LIMIT,
        "truncate": True,
        "pairs": False,
        "vocabulary": len(VOCABULARY),
    }
    outputs = (Tensor("embedding", "FP32", [4]),)
    found = Tokens(**fields | changes)
    return ModelSpec(0, "m", "text", (TEXT,), outputs, 8, 0, 1 << 40, "eager", (0,), tokens=found)


def test_long_texts_and_those_before_the_tokenizer_is_there_are_a_thread_s(tmp_path: Path) -> None:
    texts = TextModel(spec_of(write_directory(tmp_path / "m")))
    assert not texts.is_quick(Given(["the cat"]))
    texts.load()
    assert texts.is_quick(Given(["the cat"]))
    assert texts.is_quick(Given(["x" * QUICK_CHARACTERS]))
    assert not texts.is_quick(Given(["x" * QUICK_CHARACTERS, "y"]))


def test_tokens_are_those_of_the_tokenizer(tmp_path: Path) -> None:
    texts = TextModel(spec_of(write_directory(tmp_path / "m")))
    asked = Given(["the cat", "cat " * 100, "mat"])
    texts.tokenized(asked)
    assert asked.counts == [len(ids) for ids in tokens(*asked.texts)]


@pytest.mark.parametrize(
    ("changes", "logged"),
    [({"digest": "0"}, "is another by now"), ({"path": "/none.json"}, "cannot be read")],
)
def test_a_tokenizer_that_cannot_be_used_is_no_defect(
    tmp_path: Path, changes: dict[str, Any], logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    texts = TextModel(spec_of(write_directory(tmp_path / "m"), **changes))
    with pytest.raises(ModelNotReady, match="its tokenizer cannot be used; the log says why"):
        texts.tokenized(Given(["the cat"]))
    assert texts.obstacle == "its tokenizer cannot be used; the log says why"
    assert logged in caplog.text


def test_a_model_that_has_become_another_is_not_what_is_served(tmp_path: Path) -> None:
    spec = spec_of(write_directory(tmp_path / "m"))
    harness = FrontendHarness(spec)
    model = harness.service.model("m")
    assert harness.service.serves(model)
    harness.segment.model_table.publish((spec_of(tmp_path / "m", truncate=False),))
    assert not harness.service.serves(model)
    assert harness.service.serves(harness.service.model("m"))
