"""Tokenizing in a thread: each request ends once, whatever happens in between."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import pytest
from frontend_harness import SECOND_NS, FrontendHarness, untyped
from text_models import LIMIT, VOCABULARY, tokens, write_directory

from ringbatch.frontend.codec.outcome import InternalError
from ringbatch.frontend.request import tokenizing
from ringbatch.frontend.request.thread_queue import ThreadQueue
from ringbatch.frontend.request.tokenizing import Tokenizing
from ringbatch.frontend.texts.rows import GivenTexts
from ringbatch.frontend.texts.tokenizing import (
    CHARACTERS_A_TOKEN,
    QUICK_SIZE,
    TextModel,
    Tokenized,
    thread,
)
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.errors import (
    DeadlineExceeded,
    InvalidRequest,
    ModelNotReady,
    Overloaded,
    RequestTooLarge,
)
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.tallies import CLIENT_GONE
from ringbatch.shm.tensor import Tensor
from ringbatch.shm.texts import TEXT, Tokens


class Story:
    """A request, and what becomes of it.

    Args:
        refuses: whether it finds no room once it has its tokens.
        limit_ns: time for which the request is worth an answer.
    """

    def __init__(self, *, refuses: bool = False, limit_ns: int = 60 * SECOND_NS) -> None:
        self.ends: list[Any] = []
        self._refuses = refuses
        self.begun = 0
        self.may_go_on = threading.Event()
        outcomes = SimpleNamespace(record=lambda _tally, code, _ns, **_: self.ends.append(code))
        lane = SimpleNamespace(counters=SimpleNamespace(add=lambda _counter: None))
        engine: Any = SimpleNamespace(outcomes=outcomes, lane=lane)
        model = SimpleNamespace(spec=SimpleNamespace(name="m", timeout_ns=60 * SECOND_NS))
        task: Any = SimpleNamespace(
            tally=None,
            accepted_ns=0,
            deadline_ns=limit_ns,
            model=model,
            account=0,
            fail=self._failed,
        )
        self.call: Tokenizing[Any] = Tokenizing(engine, task, self._send)

    def _failed(self, _engine: Any, error: Exception, *_: Any) -> None:
        self.ends.append(type(error))

    def _send(self, found: Tokenized) -> Any:
        if self._refuses:
            raise Overloaded
        self.ends.append(found)
        return SimpleNamespace(abandon=lambda: self.ends.append("abandoned"))

    def tokenized(self, error: Exception | None = None) -> Callable[[], Tokenized]:
        def work() -> Tokenized:
            self.begun += 1
            self.may_go_on.wait()
            if error is not None:
                raise error
            return TOKENIZED

        return work


TOKENIZED = Tokenized((), None)


def run(
    story: Story,
    work: Callable[[], Tokenized],
    meanwhile: Callable[[], object],
    busy: threading.Event | None = None,
) -> None:
    """Begin; do something before the thread goes on; and wait until all of it has been told.

    Args:
        story: the request.
        work: of the thread.
        meanwhile: function called in between; it may be waited for.
        busy: until it is set, the thread does something else.
    """

    async def begun() -> None:
        with ThreadPoolExecutor(1) as worker:
            if busy is not None:
                worker.submit(busy.wait)
            queue = ThreadQueue(lambda: worker, tokenizing.MOST_WAITING)
            story.call.begin(work, 1, queue)
            try:
                if isinstance(done := meanwhile(), Awaitable):
                    await done
            finally:
                story.may_go_on.set()
                if busy is not None:
                    busy.set()
            while queue.size:
                await asyncio.sleep(0)

    asyncio.run(begun())


def nothing() -> None:
    """Do nothing while the tokens are made."""


def test_tokens_go_on_their_way() -> None:
    story = Story()
    run(story, story.tokenized(), nothing)
    assert story.ends == [TOKENIZED]
    story.call.abandon()
    assert story.ends == [TOKENIZED, "abandoned"]


def test_a_client_that_leaves_before_there_are_tokens_is_sent_nowhere() -> None:
    story = Story()
    run(story, story.tokenized(), story.call.abandon)
    assert story.ends == [CLIENT_GONE]
    story.call.abandon()
    assert story.ends == [CLIENT_GONE]


@pytest.mark.parametrize(
    ("error", "end"),
    [(InvalidRequest("long"), InvalidRequest), (RuntimeError("defect"), InternalError)],
)
@pytest.mark.parametrize("leaves", [False, True])
def test_an_error_of_a_thread_ends_its_request_once(
    error: Exception, end: Any, leaves: bool
) -> None:
    story = Story()
    run(story, story.tokenized(error), story.call.abandon if leaves else nothing)
    assert story.ends == ([CLIENT_GONE] if leaves else [end])
    story.call.abandon()
    assert len(story.ends) == 1


def test_an_unsendable_request_is_refused() -> None:
    story = Story(refuses=True)
    run(story, story.tokenized(), nothing)
    story.call.abandon()
    assert story.ends == [Overloaded]


async def until_end(story: Story) -> None:
    while not story.ends:
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("busy", [None, threading.Event()])
def test_the_deadline_comes_while_a_thread_is_busy(busy: threading.Event | None) -> None:
    story = Story(limit_ns=SECOND_NS // 100)
    run(story, story.tokenized(), lambda: until_end(story), busy)
    assert story.ends == [DeadlineExceeded]
    story.call.abandon()
    assert story.ends == [DeadlineExceeded]


@pytest.mark.parametrize("how", ["leaves", "expires"])
def test_no_tokens_are_made_for_a_request_that_is_over(how: str) -> None:
    leaves = how == "leaves"
    story = Story(limit_ns=60 * SECOND_NS if leaves else SECOND_NS // 100)
    meanwhile = story.call.abandon if leaves else lambda: until_end(story)
    run(story, story.tokenized(), meanwhile, threading.Event())
    assert (story.ends, story.begun) == ([CLIENT_GONE if leaves else DeadlineExceeded], 0)


def test_an_ended_request_leaves_no_timer_behind() -> None:
    async def left() -> list[Any]:
        loop = asyncio.get_running_loop()
        timers: list[asyncio.TimerHandle] = []
        later = loop.call_later
        loop.call_later = lambda *call: timers.append(later(*call)) or timers[-1]  # type: ignore
        with ThreadPoolExecutor(1) as worker:
            queue = ThreadQueue(lambda: worker, tokenizing.MOST_WAITING)
            for abandoned in (False, True):
                story = Story()
                story.call.begin(story.tokenized(), 1, queue)
                if abandoned:
                    story.call.abandon()
                story.may_go_on.set()
                while queue.size:
                    await asyncio.sleep(0)
        return [timer.cancelled() for timer in timers]

    assert asyncio.run(left()) == [True, True]


def test_more_texts_than_may_wait_are_refused_and_one_request_alone_never_is() -> None:
    async def begun() -> None:
        most = tokenizing.MOST_WAITING
        with ThreadPoolExecutor(1) as worker:
            queue = ThreadQueue(lambda: worker, tokenizing.MOST_WAITING)
            stories = [Story(), Story()]
            for story, characters in zip(stories, (most - 5, 5), strict=True):
                story.call.begin(story.tokenized(), characters, queue)
            with pytest.raises(Overloaded, match=f"may have {most} characters") as refused:
                Story().call.begin(story.tokenized(), 1, queue)
            assert refused.value.retry_after_s > 0
            stories[0].call.abandon()
            assert queue.size == most, "the thread holds them yet"
            for story in stories:
                story.may_go_on.set()
            while queue.size:
                await asyncio.sleep(0)
            story = Story()
            story.may_go_on.set()
            story.call.begin(story.tokenized(), most + 1, queue)
            await until_end(story)
            assert story.ends == [TOKENIZED]

    asyncio.run(begun())


def spec_of(folder: Path, *, timeout_s: int = 1 << 10, **changes: Any) -> ModelSpec:
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
    limit_ns = timeout_s * SECOND_NS
    return ModelSpec(0, "m", "text", (TEXT,), outputs, 8, 0, limit_ns, "eager", (0,), tokens=found)


def test_long_texts_and_those_before_the_tokenizer_is_there_are_a_thread_s(tmp_path: Path) -> None:
    texts = TextModel(spec_of(write_directory(tmp_path / "m")))
    assert not texts.is_quick(GivenTexts(["the cat"]))
    texts.load()
    assert texts.is_quick(GivenTexts(["the cat"]))
    assert texts.is_quick(GivenTexts(["x" * (QUICK_SIZE // 2)]))
    assert not texts.is_quick(GivenTexts(["x" * QUICK_SIZE]))
    assert not texts.is_quick(GivenTexts([""] * (QUICK_SIZE // 8))), "empty ones take time too"
    assert not texts.is_quick(GivenTexts((), [[1]] * (QUICK_SIZE // 8))), (
        "and so do a client's tokens"
    )


def test_tokens_are_those_of_the_tokenizer(tmp_path: Path) -> None:
    texts = TextModel(spec_of(write_directory(tmp_path / "m")))
    asked = GivenTexts(["the cat", "cat " * 100, "mat"])
    texts.tokenized(asked)
    assert asked.counts == [len(ids) for ids in tokens(*asked.texts)]


@pytest.mark.parametrize("direction", ["right", "left"])
def test_a_clients_tokens_are_cut_where_it_asks_for_that(tmp_path: Path, direction: str) -> None:
    folder = write_directory(tmp_path / "m")
    file = folder / "tokenizer.json"
    saved = json.loads(file.read_text())
    saved["truncation"]["direction"] = direction.capitalize()
    file.write_text(json.dumps(saved))
    texts = TextModel(spec_of(folder))
    ids = [number % len(VOCABULARY) for number in range(LIMIT + 5)]
    kept = ids[:LIMIT] if direction == "right" else ids[-LIMIT:]
    for sent, expected in ((ids, kept), (ids[:3], ids[:3])):
        (part,) = texts.tokenized(GivenTexts((), [sent], truncate=True)).parts
        assert bytes(part.payload).endswith(np.array(expected, np.int32).tobytes())
    for truncate in (False, None):
        with pytest.raises(InvalidRequest, match=f"has {LIMIT + 5} tokens; this model takes from"):
            texts.tokenized(GivenTexts((), [ids], truncate=truncate))
    with pytest.raises(InvalidRequest, match="has the token 99; this model's are from 0"):
        texts.tokenized(GivenTexts((), [[99] * (LIMIT + 1)], truncate=True))


@pytest.mark.parametrize(
    ("most", "counts"), [(0, [5, 10, 6]), (1, [5, 5, 5]), (2, [5, 6, 6]), (LIMIT, [5, 10, 6])]
)
def test_documents_have_no_more_tokens_than_are_asked_for(
    tmp_path: Path, most: int, counts: list[int]
) -> None:
    spec = spec_of(write_directory(tmp_path / "m", labels=1), pairs=True)
    pairs = [("the", "mat"), ("the", "cat sat on mat far away"), ("the", "x" * 300 + " cat")]
    asked = GivenTexts(pairs, document_tokens=most)
    TextModel(spec).tokenized(asked)
    assert asked.counts == counts


@pytest.mark.parametrize("which", [0, 1])
def test_half_of_a_pair_that_is_far_too_long_is_refused_where_it_is_not_to_be_cut(
    tmp_path: Path, which: int
) -> None:
    word = "x" * (LIMIT * CHARACTERS_A_TOKEN)
    pair = ["the", "cat"]
    spec = spec_of(write_directory(tmp_path / "m", labels=1), pairs=True)
    texts = TextModel(spec)
    for size, truncate in ((0, False), (1, True), (1, None)):
        pair[which] = word + "x" * size
        asked = GivenTexts([("the", "mat"), (pair[0], pair[1])], truncate=truncate)
        texts.tokenized(asked)
        # A word of any length is one token.
        assert asked.counts == [5, 5]
    with pytest.raises(InvalidRequest) as refused:
        texts.tokenized(GivenTexts([("the", "mat"), (pair[0], pair[1])], truncate=False))
    assert str(refused.value) == (
        f"text 1 has {len(word) + 1} characters, but this model takes at most {LIMIT} tokens; send "
        "a shorter one, or have the rest left out with truncate"
    )


@pytest.mark.parametrize(
    ("changes", "logged"),
    [({"digest": "0"}, "is another by now"), ({"path": "/none.json"}, "cannot be read")],
)
def test_a_tokenizer_that_cannot_be_used_is_no_defect(
    tmp_path: Path, changes: dict[str, Any], logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    texts = TextModel(spec_of(write_directory(tmp_path / "m"), **changes))
    with pytest.raises(ModelNotReady, match="its tokenizer cannot be used; the log says why"):
        texts.tokenized(GivenTexts(["the cat"]))
    assert texts.obstacle == "its tokenizer cannot be used; the log says why"
    assert logged in caplog.text


def test_a_model_that_was_replaced_is_no_longer_served(tmp_path: Path) -> None:
    spec = spec_of(write_directory(tmp_path / "m"))
    harness = FrontendHarness(spec)
    model = harness.service.model("m")
    assert harness.service.serves(model)
    harness.segment.model_table.publish((spec_of(tmp_path / "m", truncate=False),))
    assert not harness.service.serves(model)
    assert harness.service.serves(harness.service.model("m"))


LONG = "the cat " * QUICK_SIZE


@contextmanager
def busy_thread() -> Iterator[None]:
    """The thread of this process does something else."""
    may_go_on = threading.Event()
    done = thread().submit(may_go_on.wait)
    try:
        yield
    finally:
        may_go_on.set()
        done.result()


async def answered(harness: FrontendHarness, number: int) -> tuple[int, Any]:
    """Status and body of an answer, once it is there."""
    while number not in harness.replies.got:
        await asyncio.sleep(0.001)
    status, body, _ = harness.replies.got[number]
    return status, body


def test_a_deadline_holds_while_others_texts_are_made_tokens_of(tmp_path: Path) -> None:
    async def asked() -> None:
        harness = FrontendHarness(spec_of(write_directory(tmp_path / "m")))
        with busy_thread():
            body = orjson.dumps({"instances": [LONG]})
            call = harness.service.predict("m", body, harness.replies.to(1), SECOND_NS // 100)
            assert call is not None
            late = {"error": "no answer came within the 0.01 s it asked for"}
            assert await answered(harness, 1) == (504, late)
        assert harness.count(LaneCounter.TIMEOUTS) == 1

    asyncio.run(asked())


def test_texts_beyond_the_waiting_limit_are_refused(tmp_path: Path) -> None:
    async def asked() -> None:
        harness = FrontendHarness(spec_of(write_directory(tmp_path / "m")))
        harness.service.pipeline._texts.most = len(LONG) + 100
        with busy_thread():
            call = harness.predict(1, [LONG])
            assert call is not None
            assert harness.predict(2, [LONG]) is None
            status, body, headers = harness.replies.got[2]
            assert (status, headers["retry-after"]) == (503, "1")
            assert body["error"].startswith("so many texts wait to be made tokens of")
            call.abandon()
        assert harness.count(LaneCounter.REFUSED) == 1

    asyncio.run(asked())


@pytest.mark.parametrize(
    ("spent_s", "status", "words"),
    [
        (0, 0, ""),
        (50, 503, "would take 20.0 s, too long for the 10 s that are left of timeout_s = 60"),
        (60, 504, "no answer came within timeout_s = 60"),
    ],
)
def test_the_time_that_tokens_have_taken_is_spent(
    tmp_path: Path, spent_s: int, status: int, words: str
) -> None:
    async def asked() -> None:
        harness = FrontendHarness(spec_of(write_directory(tmp_path / "m"), timeout_s=60))
        harness.segment.words[harness.service.model("m").answer_word] = 20 * SECOND_NS
        with busy_thread():
            harness.predict(1, [LONG])
            harness.loop.now_ns += spent_s * SECOND_NS
        if status:
            found, body = await answered(harness, 1)
            assert found == status
            assert words in body["error"]
            return
        while not harness.lane.in_flight:
            await asyncio.sleep(0.001)

    asyncio.run(asked())


def test_a_request_that_begins_anew_keeps_its_deadline(tmp_path: Path) -> None:
    async def asked() -> None:
        harness = FrontendHarness(spec_of(write_directory(tmp_path / "m"), timeout_s=60))
        with busy_thread():
            harness.predict(1, [LONG])
            harness.loop.now_ns += 50 * SECOND_NS
            begun_ns = harness.loop.now_ns
            changed = spec_of(tmp_path / "m", timeout_s=60, truncate=True, limit=LIMIT - 1)
            harness.segment.model_table.publish((changed,))
        while not harness.lane.in_flight:
            await asyncio.sleep(0.001)
        harness.loop.turn()
        (request,) = harness.taken()
        assert request.deadline_ns == begun_ns + 10 * SECOND_NS

    asyncio.run(asked())


@pytest.mark.parametrize("in_order", [True, False])
def test_texts_that_make_more_batches_by_their_lengths_are_refused_where_they_are_read(
    in_order: bool,
) -> None:
    model = TextModel(
        untyped(
            inputs=(TEXT,),
            tokens=Tokens("/none", "", 8, truncate=True, pairs=False, vocabulary=9),
            max_batch_elements=8,
            length_buckets=(8,),
        ),
        max_in_flight=3,
    )
    assert len(model.tokenized(GivenTexts((), [[1] * 8] * 3), in_order=in_order).parts) == 3
    with pytest.raises(RequestTooLarge, match="4 instances, which make 4 batches"):
        model.tokenized(GivenTexts((), [[1] * 8] * 4), in_order=in_order)
