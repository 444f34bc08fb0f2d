"""Workers' knowledge of the model servers that they ask, in the segment.

Every worker of the runtime http has a record of each server, which it alone writes, and says which
of them has its batch now. A server's state is concluded from all records together. So a failure
that one worker has met spares the others, and no counter has two writers. The records of a worker
that does not serve are left out, and with them the batch that it died with.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ringbatch.shm.descriptors import (
    WorkerState,
    WorkerWords,
)
from ringbatch.shm.layout import WORD, Layout
from ringbatch.shm.memory_order import (
    acquire_fence,
    begin_change,
    is_unchanged,
    load_acquire,
    store_release,
)
from ringbatch.shm.upstream_words import UPSTREAMS, AskingWords, UpstreamWords

DOWN_AFTER: Final = 3
"""Failures in a row after which a server is taken for down."""
FORGOTTEN_NS: Final = 10_000_000_000
"""Age from which a learned pace says nothing of a server any more."""
_FRESH_TIMES: Final = 20
"""Age of a learned pace, in times of an answer, from which it says nothing any more: one slow start
must not keep a quick server without batches."""
_NAME_BYTES: Final = (UpstreamWords.BATCHES - UpstreamWords.NAME) * WORD
_KNOWN: Final = slice(UpstreamWords.FAILED_IN_A_ROW, UpstreamWords.PROBED_NS + 1)


class Known(NamedTuple):
    """A server as one worker knows it, the words as `UpstreamWords` has them."""

    failed_in_a_row: int = 0
    answered_ns: int = 0
    failed_ns: int = 0
    held_until_ns: int = 0
    took_ns: int = 0
    learned_ns: int = 0
    probed_ns: int = 0


class ServerState(NamedTuple):
    """A server as all workers know it.

    Attributes:
        outstanding: batches that it has now.
        oldest_ns: when the first of these was sent; 0 if there is none.
        failed_in_a_row: failures since it was last heard of.
        answered_ns, failed_ns, probed_ns: when it last answered, failed and was asked whether it is
            there; 0 for never.
        held_until_ns: until when it wants no batch.
        took_ns: how long its answers take; 0 if nobody knows.
    """

    outstanding: int = 0
    oldest_ns: int = 0
    failed_in_a_row: int = 0
    answered_ns: int = 0
    failed_ns: int = 0
    held_until_ns: int = 0
    took_ns: int = 0
    probed_ns: int = 0

    @property
    def down(self) -> bool:
        """True if no batch is to be sent to it."""
        return self.failed_in_a_row >= DOWN_AFTER


class SentCounts(NamedTuple):
    """Counts of one worker for a server; of `batches`, so many failed and so many were refused."""

    name: str
    batches: int
    failures: int
    refusals: int


class ServerCounts(NamedTuple):
    """Counts of a server from all workers of a model, and the server's state."""

    name: str
    batches: int
    failures: int
    refusals: int
    state: ServerState


def concluded(known: Collection[Known], since_ns: Collection[int], now_ns: int) -> ServerState:
    """Return the state of a server.

    Args:
        known: each worker's record of the server.
        since_ns: when each of the batches was sent that it has.
        now_ns: the time.
    """
    answered_ns = max([one.answered_ns for one in known], default=0)
    paces = [
        k.took_ns
        for k in known
        if now_ns - k.learned_ns < min(FORGOTTEN_NS, _FRESH_TIMES * k.took_ns)
    ]
    return ServerState(
        outstanding=len(since_ns),
        oldest_ns=min(since_ns, default=0),
        # A worker's failures no longer count once another worker had an answer since.
        failed_in_a_row=sum(k.failed_in_a_row for k in known if k.failed_ns > answered_ns),
        answered_ns=answered_ns,
        failed_ns=max([one.failed_ns for one in known], default=0),
        held_until_ns=max([one.held_until_ns for one in known], default=0),
        took_ns=sum(paces) // len(paces) if paces else 0,
        probed_ns=max([one.probed_ns for one in known], default=0),
    )


class Upstreams:
    """The records, for readers.

    Args:
        words: the segment as a memoryview of format ``Q``.
        layout: its sizes.
    """

    def __init__(self, words: memoryview, layout: Layout) -> None:
        self._words = words
        self._layout = layout

    def states(
        self, tags: Iterable[int], now_ns: int, worker: int | None = None
    ) -> dict[int, ServerState]:
        """Return the states of servers, by their tags.

        Args:
            tags: of the servers.
            now_ns: the time.
            worker: one that counts even if its own state says that it does not serve.
        """
        words, layout = self._words, self._layout
        known: dict[int, list[Known]] = {tag: [] for tag in tags}
        since: dict[int, list[int]] = {tag: [] for tag in known}
        first, size = layout.worker(0), WorkerWords.SIZE
        end = first + layout.workers * size
        states = words[first + WorkerWords.STATE : end : size].tolist()
        counts = words[first + WorkerWords.SERVERS : end : size].tolist()
        acquire_fence()
        for number, count in enumerate(counts):
            if not count or (states[number] != WorkerState.READY and number != worker):
                continue
            asking = layout.asking(number)
            has_it = since.get(load_acquire(words, asking + AskingWords.SERVER))
            if has_it is not None:
                has_it.append(words[asking + AskingWords.SINCE_NS])
            for place in range(min(count, UPSTREAMS)):
                record = layout.upstream(number, place)
                tag = load_acquire(words, record + UpstreamWords.TAG)
                if (own := known.get(tag)) is not None:
                    values = words[record + _KNOWN.start : record + _KNOWN.stop].tolist()
                    own.append(Known._make(values))
        return {tag: concluded(known[tag], since[tag], now_ns) for tag in known}

    def counts(self, workers: Collection[int], now_ns: int) -> list[ServerCounts]:
        """Return the counts of a model's workers for each server that any of them knows.

        They come in the order of names.
        """
        names: dict[int, str] = {}
        totals: dict[int, list[int]] = {}
        for number in workers:
            for tag, (name, *counted) in self.sent_by(number).items():
                names[tag] = name
                own = totals.setdefault(tag, [0, 0, 0])
                own[:] = [a + b for a, b in zip(own, counted, strict=True)]
        states = self.states(names, now_ns)
        found = [
            ServerCounts(names[tag], batches, failures, refusals, states[tag])
            for tag, (batches, failures, refusals) in totals.items()
        ]
        return sorted(found, key=lambda server: server.name)

    def sent_by(self, worker: int) -> dict[int, SentCounts]:
        """Return the counts of a worker for each server that it knows, by tags."""
        words, found = self._words, dict[int, SentCounts]()
        for place in range(UPSTREAMS):
            record = self._layout.upstream(worker, place)
            tag = load_acquire(words, record + UpstreamWords.TAG)
            if tag:
                first = record + UpstreamWords.BATCHES
                sent = SentCounts(self._name(record), *words[first : first + 3].tolist())
                if is_unchanged(words, record + UpstreamWords.TAG, tag):
                    found[tag] = sent
        return found

    def _name(self, record: int) -> str:
        start = (record + UpstreamWords.NAME) * WORD
        text = self._words.cast("B")[start : start + _NAME_BYTES].tobytes()
        return text.partition(b"\0")[0].decode(errors="replace")


class OwnUpstreams(Upstreams):
    """The records, for the worker that writes its own.

    Args:
        words: the segment as a memoryview of format ``Q``.
        layout: its sizes.
        number: the worker's.
    """

    def __init__(self, words: memoryview, layout: Layout, number: int) -> None:
        super().__init__(words, layout)
        self._number = number
        self._worker = layout.worker(number)
        self._asking = layout.asking(number)
        self._places: Mapping[int, int] = {}

    @property
    def lane_bytes(self) -> int:
        """The size of a lane, which holds answers."""
        return self._layout.lane_bytes

    @classmethod
    def alone(cls) -> "OwnUpstreams":
        """Make records that no other process sees, for a process without a segment."""
        layout = Layout(
            lanes=1, slots=1, lane_bytes=1 << 12, workers=1, models=1, model_table_bytes=1
        )
        return cls(memoryview(bytearray(layout.registry_word * WORD)).cast("Q"), layout, 0)

    def begin(self) -> None:
        """Forget all servers and ask none: an earlier worker of this number may have left some."""
        words = self._words
        words[self._asking + AskingWords.SERVER] = 0
        words[self._worker + WorkerWords.SERVERS] = 0
        words[self._worker + WorkerWords.SERVERS_DOWN] = 0
        for place in range(UPSTREAMS):
            record = self._layout.upstream(self._number, place)
            for word in range(record + _KNOWN.start, record + _KNOWN.stop):
                words[word] = 0

    def know(self, names: Mapping[int, str]) -> None:
        """Have a record of each of these servers, and of no other.

        Args:
            names: what each is called, by its tag; no more than UPSTREAMS.
        """
        words = self._words
        records = [self._layout.upstream(self._number, place) for place in range(UPSTREAMS)]
        kept = {words[r + UpstreamWords.TAG]: r for r in records}
        places = {tag: kept[tag] for tag in names if tag in kept}
        free = [record for record in records if record not in places.values()]
        for record in free:
            begin_change(words, record + UpstreamWords.TAG)
        for tag in names:
            if tag not in places:
                places[tag] = record = free.pop(0)
                self._fill(record, tag, names[tag])
        last = max([records.index(record) for record in places.values()], default=-1)
        words[self._worker + WorkerWords.SERVERS] = last + 1
        self._places = places

    def _fill(self, record: int, tag: int, name: str) -> None:
        words = self._words
        for word in range(record + UpstreamWords.NAME, record + UpstreamWords.SIZE):
            words[word] = 0
        text = name.encode()[:_NAME_BYTES]
        start = (record + UpstreamWords.NAME) * WORD
        words.cast("B")[start : start + len(text)] = text
        store_release(words, record + UpstreamWords.TAG, tag)

    def own_states(self, tags: Sequence[int], now_ns: int) -> dict[int, ServerState]:
        """Return `states`, with this worker's own records added."""
        return self.states(tags, now_ns, self._number)

    def publish_down(self, servers: int) -> None:
        """Publish that all of so many servers are down; 0 if one is not."""
        self._words[self._worker + WorkerWords.SERVERS_DOWN] = servers

    def sent(self, tag: int, now_ns: int) -> None:
        """Record that a batch goes to a server."""
        words = self._words
        words[self._asking + AskingWords.SINCE_NS] = now_ns
        store_release(words, self._asking + AskingWords.SERVER, tag)
        self._add(tag, UpstreamWords.BATCHES)

    def over(self) -> None:
        """Record that no server has a batch of this worker any more."""
        self._words[self._asking + AskingWords.SERVER] = 0

    def answered(self, tag: int, now_ns: int) -> None:
        """Record a sign of life of a server."""
        self._store(tag, UpstreamWords.ANSWERED_NS, now_ns)
        self._store(tag, UpstreamWords.FAILED_IN_A_ROW, 0)

    def learned(self, tag: int, took_ns: int, now_ns: int) -> None:
        """Record how long a server's answers take."""
        self._store(tag, UpstreamWords.TOOK_NS, took_ns)
        self._store(tag, UpstreamWords.LEARNED_NS, now_ns)

    def pace_ns(self, tag: int) -> int:
        """Return the time of answers that this worker learned last; 0 if none."""
        record = self._places.get(tag)
        return 0 if record is None else self._words[record + UpstreamWords.TOOK_NS]

    def failed(self, tag: int, now_ns: int, failures: int, *, of_batch: bool) -> None:
        """Record a failure of a server.

        Args:
            tag: of the server.
            now_ns: the time.
            failures: for how many this counts.
            of_batch: False for a probe.
        """
        self._add(tag, UpstreamWords.FAILED_IN_A_ROW, failures)
        self._store(tag, UpstreamWords.FAILED_NS, now_ns)
        if of_batch:
            self._add(tag, UpstreamWords.FAILURES)

    def refused(self, tag: int, held_until_ns: int) -> None:
        """Record that a server wants no batch until then."""
        self._store(tag, UpstreamWords.HELD_UNTIL_NS, held_until_ns)
        self._add(tag, UpstreamWords.REFUSALS)

    def probed(self, tag: int, now_ns: int) -> None:
        """Record a probe of a server, so that no other worker probes it now."""
        self._store(tag, UpstreamWords.PROBED_NS, now_ns)

    def _store(self, tag: int, word: int, value: int) -> None:
        record = self._places.get(tag)
        # It may have gone from its name's addresses while it was asked.
        if record is not None:
            self._words[record + word] = value

    def _add(self, tag: int, word: int, amount: int = 1) -> None:
        record = self._places.get(tag)
        if record is not None:
            self._words[record + word] += amount
