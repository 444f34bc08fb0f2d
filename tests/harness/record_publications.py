"""Publications about models and workers, and in records that have a stamp."""

from collections.abc import Callable, Iterable
from struct import Struct
from types import SimpleNamespace
from typing import Any, cast

from publication_site import (
    LAYOUT,
    Bytes,
    Publication,
    Site,
    WordByWord,
    publication,
)
from segment_fixture import FAR_NS

from ringbatch.engine.collector import takeover
from ringbatch.engine.collector.model_pool import ModelPool
from ringbatch.engine.worker import role as worker_role
from ringbatch.frontend.request.models import Models
from ringbatch.shm import (
    cost_profile,
    lane,
    memory_order,
    model_readiness,
    model_spec,
    model_table,
    readiness,
    slow_requests,
)
from ringbatch.shm.cost_profile import Trial
from ringbatch.shm.descriptors import (
    CostProfileWords,
    HeaderWords,
    LaneWords,
    ModelCounterWords,
    ModelWords,
    RequestRecordWords,
    RingWords,
    ScalingWords,
    WorkerState,
    WorkerWords,
)
from ringbatch.shm.lane import Lane
from ringbatch.shm.latency_breakdown import Breakdown
from ringbatch.shm.layout import WORD, Layout
from ringbatch.shm.model_counters import Counted, ModelCounters
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.model_table import ModelTable
from ringbatch.shm.readiness import ModelState
from ringbatch.shm.region import Region
from ringbatch.shm.region_registry import Registry
from ringbatch.shm.region_words import RegionWords, RegistryWords
from ringbatch.shm.ring import Consumer
from ringbatch.shm.scalings import Scalings
from ringbatch.shm.segment import Segment
from ringbatch.shm.slow_requests import RequestRecord
from ringbatch.shm.tallies import Protocol
from ringbatch.shm.upstream_words import AskingWords, UpstreamWords
from ringbatch.shm.upstreams import OwnUpstreams, Upstreams

# Models and workers


def follow_table(site: Site) -> None:
    """Submit a request to a model of the old table, and say that the next are for the new one."""
    frontend = Lane(site.segment, 0, lambda: None)
    models = Models(site.segment, frontend)
    slot = frontend.claim(WORD, WORD, 0)
    assert slot is not None
    frontend.publish(slot, 0, 5, 0, FAR_NS, WORD)
    models.keep_up()


def look_for_requests(site: Site) -> None:
    """Look whether the frontend follows the new table, and then for requests to the old one."""
    pool = ModelPool(site.segment, lambda _worker: None)
    pool._number = 1
    pool._patient_until_ns = FAR_NS
    ring = Consumer(site.words, LAYOUT.submission_ring(0), LAYOUT.slots)
    if pool.acknowledged(0):
        site.found.append(ring.has_items)


def is_found(site: Site) -> None:
    assert site.found in ([], [True]), "a request to a model that has retired is lost"


def become_ready(site: Site) -> None:
    site.words[WORKER + WorkerWords.MODEL] = 9
    worker_role._publish_state(site.segment, 0, WorkerState.READY)


WORKER = LAYOUT.worker(0)


def find_model(site: Site) -> None:
    if takeover.is_ready(site.segment, 0):
        site.found.append(takeover.model_of(site.segment, 0))


def is_model_9(site: Site) -> None:
    assert site.found in ([], [9]), "another model's worker"


def leave_ready(site: Site) -> None:
    readiness.publish(site.words, MODEL, ModelState.CANNOT_LOAD)
    readiness.publish(site.words, MODEL, ModelState.SERVING)


MODEL = LAYOUT.model(0)


def look_at_model(site: Site) -> None:
    if memory_order.load_acquire(site.words, MODEL + ModelWords.STATE) == ModelState.SERVING:
        site.found.append(site.words[MODEL + ModelWords.TAKES])


def takes_requests(site: Site) -> None:
    assert site.found in ([], [1]), "ready, and refuses requests"


def refuse(site: Site) -> None:
    readiness.publish(site.words, MODEL, ModelState.CANNOT_LOAD)


def ask_why(site: Site) -> None:
    """Ask why a model refuses requests, as a frontend that has found that it does."""
    if not site.words[MODEL + ModelWords.TAKES]:
        site.found.append(model_readiness._holding(site.words, MODEL, 0, []))


def is_why(site: Site) -> None:
    assert all(ModelState.CANNOT_LOAD in found for found in site.found), "refused without a reason"


def be_ready(site: Site) -> None:
    readiness.publish(site.words, MODEL, ModelState.SERVING)


def count_for_scalings(site: Site) -> None:
    Scalings(site.words, LAYOUT, 0).open()


def fail_start(site: Site) -> None:
    Scalings(site.words, LAYOUT, 0).fail(again_ns=77)


def look_at_failure(site: Site) -> None:
    scalings = Scalings(site.words, LAYOUT, 0)
    if scalings.failed:
        site.found.append(scalings.again_ns)


def is_instant(site: Site) -> None:
    assert site.found in ([], [77]), "a failure without its next attempt"


def open_scaling(site: Site) -> None:
    """Open the record of another model where this one's was."""
    Scalings(site.words, LAYOUT, OTHER).open()


def look_at_other(site: Site) -> None:
    site.found.append(Scalings(site.words, LAYOUT, OTHER).wanted)


def is_nothing_wanted(site: Site) -> None:
    assert site.found == [0], "what another model wanted"


def want(site: Site) -> None:
    count_for_scalings(site)
    Scalings(site.words, LAYOUT, 0).want(5)


# Model servers


SERVER, BEFORE = 9, 8
"""The tags of two; the second was known where the first comes to stand."""
ASKING, UPSTREAM = LAYOUT.asking(0), LAYOUT.upstream(0, 0)


def ask_server(site: Site) -> None:
    OwnUpstreams(site.words, LAYOUT, 0).sent(SERVER, 44)


def know(*tags: int) -> Callable[[Site], None]:
    def learn(site: Site) -> None:
        OwnUpstreams(site.words, LAYOUT, 0).know(dict.fromkeys(tags, "a"))

    return learn


def know_and_serve(site: Site) -> None:
    site.words[WORKER + WorkerWords.STATE] = WorkerState.READY
    know(SERVER)(site)


def have_asked(site: Site) -> None:
    know(BEFORE)(site)
    site.words[UPSTREAM + UpstreamWords.BATCHES] = 5


def look_at_asking(site: Site) -> None:
    state = Upstreams(site.words, LAYOUT).states([SERVER], 0)[SERVER]
    site.found.append((state.outstanding, state.oldest_ns))


def is_asked(site: Site) -> None:
    assert site.found[0] in ((0, 0), (1, 44)), "a request without its instant"


def look_at_sent(site: Site) -> None:
    sent = Upstreams(site.words, LAYOUT).sent_by(0)
    site.found += [(tag, counts.batches) for tag, counts in sent.items()]


def are_its_own(site: Site) -> None:
    assert site.found in ([], [(BEFORE, 5)], [(SERVER, 0)]), "the counts of another server"


# Records with a stamp


def write_profile(site: Site) -> None:
    cost_profile.write(site.segment, 0, [Trial(1, 2, 3)])


def read_profile(site: Site) -> None:
    site.found += cost_profile.read(site.segment, 0)


def is_profile(site: Site) -> None:
    assert site.found in ([], [Trial(1, 2, 3)]), "a mixture"


OLD, NEW = Region("a", "/a", 1, 11, 111, 1111), Region("a", "/a", 2, 22, 111, 1111)
"""Records whose differing words are the only steps."""


def registry(site: Site) -> Registry:
    return Registry(site.words, LAYOUT.registry_word, lambda: True, lambda: None, 1)


REGION = LAYOUT.registry_word + RegistryWords.SIZE
COUNTERS = LAYOUT.model_counters(0)


def replace_region(site: Site) -> None:
    registrar = registry(site)
    registrar.remove("a")
    registrar.add(NEW)


def is_region(site: Site) -> None:
    assert all(entry.region in (OLD, NEW) for entry in site.found), "a mixture"


OLD_COUNT = 5
OTHER = 1 << 24
"""An account that comes to stand where account 0 stood."""


def count(site: Site) -> None:
    counters = ModelCounters(site.words, COUNTERS, ModelCounterWords.SIZE)
    counters.open(0)
    for counter in range(2):
        counters.add(counter, OLD_COUNT)


def count_for_other(site: Site) -> None:
    ModelCounters(site.words, COUNTERS, ModelCounterWords.SIZE).open(OTHER)


def read_counts(account: int) -> Callable[[Site], None]:
    def read(site: Site) -> None:
        counts = Counted(site.words, LAYOUT, account)
        site.found += [counts[0], counts[1]]

    return read


def are_counts_of_0(site: Site) -> None:
    assert site.found in ([0, 0], [OLD_COUNT, OLD_COUNT]), "a mixture"


def are_counts_of_other(site: Site) -> None:
    assert site.found == [0, 0], "the counts of another account"


def table_of(site: Site) -> ModelTable:
    """Return a model table of eight bytes, in memory that is watched."""

    def copy(number: int) -> slice:
        start = (TABLE + number % 2) * WORD
        return slice(start, start + WORD)

    layout = SimpleNamespace(model_table_bytes=WORD, model_table_copy=copy)
    return ModelTable(site.words, cast(memoryview, Bytes(site)), cast(Layout, layout))


TABLE = LAYOUT.payload_byte // WORD


class Line(bytes):
    """An entry of a table, and its line."""

    reference = 0


class Lines:
    """Stand-in for the format of a table of a single `Line`; other tables are as usual."""

    line_of = staticmethod(lambda e: e if isinstance(e, Line) else model_spec.line_of(e))
    lines_of = staticmethod(lambda t: [t] if len(t) == WORD else model_spec.lines_of(t))
    entry_of = staticmethod(lambda n: n if len(n) == WORD else model_spec.entry_of(n))

    @staticmethod
    def joined(lines: Iterable[bytes]) -> bytes:
        found = [*lines]
        return found[0] if isinstance(found[0], Line) else model_spec.joined(found)


def table_text(number: int) -> Line:
    return Line(b"%08d" % number)


def publish_tables(site: Site) -> None:
    """Publish two tables, of which the second is where the first known one was."""
    table = table_of(site)
    for number in (2, 3):
        table.publish((cast(ModelSpec, table_text(number)),))


def publish_first_table(site: Site) -> None:
    site.words[HeaderWords.MODEL_TABLE] = 1
    cast(Any, Bytes(site))[table_of(site)._layout.model_table_copy(1)] = table_text(1)


def read_table(site: Site) -> None:
    number, (text,) = table_of(site).read()
    site.found.append((number, text))


def is_table(site: Site) -> None:
    ((number, text),) = site.found
    assert text == table_text(number), "another table's entries"


class TwoWords(WordByWord):
    """Stand-in for the structure of a record: two words, which the reader finds equal."""

    size = 2 * WORD

    def pack_into(self, _memory: object, offset: int, *values: int) -> None:
        super().pack_into(_memory, offset, values[0], values[0])

    def unpack(self, copied: bytes) -> tuple[Any, ...]:
        first, second = Struct("<QQ").unpack(copied)
        assert first == second, "a mixture"
        # The reader rejects the fields behind these, and then returns nothing.
        return (first, 0, 99, *range(21), b"")


RECORD = LAYOUT.slow_requests(0)
RECORD_OF = RequestRecord(0, 0, Protocol.V1, 200, 1, Breakdown(0, 0), "", "")


def as_bytes(site: Site) -> Segment:
    """Return the segment whose bytes are watched too."""
    return cast(Segment, SimpleNamespace(words=site.words, memory=Bytes(site)))


def write_record(site: Site) -> None:
    for number in (1, 2):
        writing = site.words[RECORD] + 1
        request = RECORD_OF._replace(ended_ns=number)
        slow_requests.store(as_bytes(site), RECORD, request, writing)


def read_record(site: Site) -> None:
    slow_requests._whole(as_bytes(site), RECORD)


def nothing(_site: Site) -> None:
    pass


RECORD_PUBLICATIONS: dict[str, Publication] = {
    "a lane that follows the model table": Publication(
        publication(follow_table, look_for_requests, is_found),
        frozenset(
            {
                LAYOUT.lane(0) + LaneWords.MODEL_TABLE,
                LAYOUT.submission_ring(0) + RingWords.TAIL,
            }
        ),
        (("load", LAYOUT.lane(0) + LaneWords.MODEL_TABLE),),
        ((lane, "full_fence"),),
    ),
    "a worker that is ready": Publication(
        publication(become_ready, find_model, is_model_9),
        frozenset({WORKER + WorkerWords.STATE, WORKER + WorkerWords.MODEL}),
        (("store", WORKER + WorkerWords.STATE), ("load", WORKER + WorkerWords.STATE)),
    ),
    "a model that is ready": Publication(
        publication(leave_ready, look_at_model, takes_requests),
        frozenset({MODEL + ModelWords.STATE, MODEL + ModelWords.TAKES}),
        (("store", MODEL + ModelWords.STATE), ("load", MODEL + ModelWords.STATE)),
    ),
    "a model that refuses": Publication(
        publication(refuse, ask_why, is_why, prepare=be_ready),
        frozenset({MODEL + ModelWords.STATE, MODEL + ModelWords.TAKES}),
        (("store", MODEL + ModelWords.TAKES),),
        ((model_readiness, "acquire_fence"),),
    ),
    "a start that failed": Publication(
        publication(fail_start, look_at_failure, is_instant, prepare=count_for_scalings),
        frozenset(
            {LAYOUT.scaling(0) + ScalingWords.FAILED, LAYOUT.scaling(0) + ScalingWords.AGAIN_NS}
        ),
        (
            ("store", LAYOUT.scaling(0) + ScalingWords.FAILED),
            ("load", LAYOUT.scaling(0) + ScalingWords.FAILED),
        ),
    ),
    "the number of workers of a model that begins": Publication(
        publication(open_scaling, look_at_other, is_nothing_wanted, prepare=want),
        frozenset({LAYOUT.scaling(0) + ScalingWords.TAG, LAYOUT.scaling(0) + ScalingWords.WANTED}),
        (
            ("store", LAYOUT.scaling(0) + ScalingWords.TAG),
            ("load", LAYOUT.scaling(0) + ScalingWords.TAG),
        ),
    ),
    "a worker's request to a model server": Publication(
        publication(ask_server, look_at_asking, is_asked, prepare=know_and_serve),
        frozenset({ASKING + AskingWords.SERVER, ASKING + AskingWords.SINCE_NS}),
        (("store", ASKING + AskingWords.SERVER), ("load", ASKING + AskingWords.SERVER)),
    ),
    "a model server that a worker knows": Publication(
        publication(know(SERVER), look_at_sent, are_its_own, prepare=have_asked),
        frozenset({UPSTREAM + UpstreamWords.TAG, UPSTREAM + UpstreamWords.BATCHES}),
        (("store", UPSTREAM + UpstreamWords.TAG), ("load", UPSTREAM + UpstreamWords.TAG)),
        ((memory_order, "acquire_fence"), (memory_order, "release_fence")),
    ),
    "a cost profile": Publication(
        publication(write_profile, read_profile, is_profile),
        frozenset(LAYOUT.cost_profile(0) + word for word in range(4)),
        (
            ("store", LAYOUT.cost_profile(0) + CostProfileWords.COUNT),
            ("load", LAYOUT.cost_profile(0) + CostProfileWords.COUNT),
        ),
    ),
    "a region of clients' memory": Publication(
        publication(
            replace_region,
            lambda site: site.found.extend(registry(site).entries()),
            is_region,
            prepare=lambda site: registry(site).add(OLD) and None,
        ),
        frozenset(
            REGION + word for word in (RegionWords.STAMP, RegionWords.OFFSET, RegionWords.BYTES)
        ),
        (("store", REGION), ("load", REGION)),
        ((memory_order, "acquire_fence"), (memory_order, "release_fence")),
    ),
    "counters of an account that ends": Publication(
        publication(count_for_other, read_counts(0), are_counts_of_0, prepare=count),
        frozenset(COUNTERS + word for word in (0, 1, ModelCounterWords.TAG)),
        (),
        ((memory_order, "acquire_fence"), (memory_order, "release_fence")),
    ),
    "counters of an account that begins": Publication(
        publication(count_for_other, read_counts(OTHER), are_counts_of_other, prepare=count),
        frozenset(COUNTERS + word for word in (0, 1, ModelCounterWords.TAG)),
        (("store", COUNTERS + ModelCounterWords.TAG), ("load", COUNTERS + ModelCounterWords.TAG)),
    ),
    "the model table": Publication(
        publication(publish_tables, read_table, is_table, prepare=publish_first_table),
        frozenset({HeaderWords.MODEL_TABLE, TABLE, TABLE + 1}),
        (("store", HeaderWords.MODEL_TABLE), ("load", HeaderWords.MODEL_TABLE)),
        ((memory_order, "acquire_fence"), (model_table, "release_fence")),
    ),
    "the record of a request": Publication(
        publication(write_record, read_record, nothing),
        frozenset(RECORD + word for word in range(3)),
        (
            ("store", RECORD + RequestRecordWords.SEQUENCE),
            ("load", RECORD + RequestRecordWords.SEQUENCE),
        ),
        ((memory_order, "acquire_fence"), (memory_order, "release_fence")),
    ),
}
"""Publications there, and the orders that each needs."""
