"""Health of a model's workers: the collector's report, and the frontend's answer by it."""

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st
from segment_fixture import ALWAYS

from ringbatch.engine.collector.health import LOOP, PATIENCE_NS, ModelHealth
from ringbatch.engine.process.respawn import STEADY_NS
from ringbatch.shm.descriptors import BEAT_S, HeaderWords, ModelWords, WorkerWords
from ringbatch.shm.layout import WORD
from ringbatch.shm.model_readiness import standing
from ringbatch.shm.readiness import ModelState

MODEL = HeaderWords.SIZE
WORKER = MODEL + ModelWords.SIZE
S = 1_000_000_000


class Patient:
    """A model with workers, one of which is ready at time 0."""

    def __init__(self, workers: int = 1) -> None:
        self.words = memoryview(bytearray(WORD * (WORKER + WorkerWords.SIZE))).cast("Q")
        self.health = self.new_collector(workers)
        self.words[HeaderWords.COLLECTOR_NS] = ALWAYS
        self.up(0, 0)

    def new_collector(self, workers: int = 1, now_ns: int = 0) -> ModelHealth:
        self.health = ModelHealth(self.words, MODEL, range(workers), now_ns)
        return self.health

    def up(self, now_ns: int, number: int = 0) -> None:
        self.health.publish_worker_count(1)
        self.health.publish_state(ModelState.SERVING)
        self.health.worker_ready(number, now_ns)

    def down(self, now_ns: int, number: int = 0, left: int = 0) -> None:
        self.health.worker_died(number, now_ns)
        self.health.publish_worker_count(left)
        self.health.publish_state(ModelState.SERVING if left else ModelState.RESTARTING)

    def complaint(self, now_ns: int) -> str:
        return standing(self.words, MODEL, now_ns, [WORKER]).why


def test_a_model_with_a_worker_is_ready_and_one_without_is_not() -> None:
    patient = Patient()
    assert patient.complaint(1) == ""
    patient.down(2)
    assert patient.complaint(3) == "no worker holds it now"
    patient.up(4)
    assert patient.complaint(5) == ""


def loop(patient: Patient, deaths: int, lived_ns: int = S) -> int:
    """Let the worker die that often, and return the time after."""
    now_ns = 0
    for _ in range(deaths):
        now_ns += lived_ns
        patient.down(now_ns)
        patient.up(now_ns)
    return now_ns


def test_deaths_in_a_row_make_a_loop_that_ends_when_a_worker_has_lived_for_a_while() -> None:
    patient = Patient()
    now_ns = loop(patient, LOOP)
    assert f"come and go: {LOOP} deaths in a row" in patient.complaint(now_ns)
    assert "come and go" in patient.complaint(now_ns + STEADY_NS - 1)
    assert patient.complaint(now_ns + STEADY_NS) == ""


def test_in_a_loop_it_says_so_also_while_no_worker_is_there() -> None:
    patient = Patient()
    now_ns = loop(patient, LOOP)
    patient.down(now_ns + 1)
    assert "come and go" in patient.complaint(now_ns + 100 * STEADY_NS)


@pytest.mark.parametrize(("deaths", "lived_ns"), [(LOOP - 1, S), (9, STEADY_NS)])
def test_few_deaths_or_long_lives_make_no_loop(deaths: int, lived_ns: int) -> None:
    patient = Patient()
    assert patient.complaint(loop(patient, deaths, lived_ns)) == ""


def test_a_death_that_is_explained_counts_for_no_loop() -> None:
    patient = Patient()
    for now_ns in range(1, 20):
        patient.down(now_ns)
        patient.health.explained(0, now_ns)
        patient.up(now_ns)
        assert patient.complaint(now_ns) == ""


def test_a_loop_of_one_worker_is_none_of_the_model_while_another_lives() -> None:
    patient = Patient(workers=2)
    patient.up(0, number=1)
    for now_ns in range(1, 20):
        patient.down(now_ns, number=1, left=1)
        patient.up(now_ns, number=1)
        assert patient.complaint(now_ns) == ""


def test_where_no_batch_is_finished_for_long_it_is_not_ready_until_one_is() -> None:
    patient = Patient()
    patient.health.arm_stuck(S, cycle_ns=0, limit_ns=1000 * S)
    assert patient.complaint(S + PATIENCE_NS) == ""
    assert "not finished a batch" in patient.complaint(S + PATIENCE_NS + 1)
    patient.health.disarm_stuck()
    assert patient.complaint(S + PATIENCE_NS + 1) == ""


@pytest.mark.parametrize(
    ("cycle_ns", "limit_ns", "patience_ns"),
    [(0, 2 * S, 2 * S), (2 * S, 100 * S, 20 * S), (20 * S, 60 * S, 60 * S)],
    ids=["limit", "usual", "slow"],
)
def test_a_long_wait_is_relative_to_the_usual_cycle(
    cycle_ns: int, limit_ns: int, patience_ns: int
) -> None:
    patient = Patient()
    patient.health.arm_stuck(0, cycle_ns, limit_ns)
    assert patient.complaint(patience_ns) == ""
    assert patient.complaint(patience_ns + 1) != ""


def test_a_new_worker_is_free() -> None:
    patient = Patient()
    patient.health.arm_stuck(0, 0, 1000 * S)
    patient.down(1)
    patient.up(2)
    assert patient.complaint(100 * S) == ""


def test_a_collector_that_does_not_move_is_noticed_whether_or_not_somebody_waits() -> None:
    patient = Patient()
    patient.words[HeaderWords.COLLECTOR_NS] = S
    assert patient.complaint(S + int(2 * BEAT_S * S)) == ""
    assert patient.complaint(S + 1 + int(2 * BEAT_S * S)).startswith("nobody has looked for requ")
    assert "for 7.0 s" in patient.complaint(8 * S)


def test_a_collector_that_has_ended_is_noticed_at_once() -> None:
    patient = Patient()
    patient.words[HeaderWords.COLLECTOR_NS] = 0
    assert "the collector has ended" in patient.complaint(1)


def test_a_loop_is_not_over_because_the_collector_is_another() -> None:
    patient = Patient()
    now_ns = loop(patient, LOOP)
    patient.new_collector(now_ns=now_ns)
    assert f"{LOOP} deaths in a row" in patient.complaint(now_ns)
    patient.up(now_ns + S)
    patient.down(now_ns + 2 * S)
    patient.up(now_ns + 2 * S)
    assert f"{LOOP + 1} deaths in a row" in patient.complaint(now_ns + 2 * S)
    assert patient.complaint(now_ns + 2 * S + STEADY_NS) == ""


def test_a_loop_that_is_over_does_not_begin_again_with_another_collector() -> None:
    patient = Patient()
    now_ns = loop(patient, LOOP) + STEADY_NS
    patient.new_collector(now_ns=now_ns)
    patient.up(now_ns)
    assert patient.complaint(now_ns) == ""
    patient.down(now_ns + S)
    patient.up(now_ns + S)
    assert patient.complaint(now_ns + S) == ""


def test_a_new_collector_with_an_idle_worker_finds_nobody_stuck() -> None:
    patient = Patient()
    patient.health.arm_stuck(0, 0, S)
    patient.new_collector()
    patient.up(20 * S)
    assert patient.complaint(21 * S) == ""


def test_the_reason_for_an_unstartable_worker_is_shown_while_no_other_holds_the_model() -> None:
    patient = Patient()
    patient.words[WORKER + WorkerWords.ERRNO] = errno.EMFILE
    assert patient.complaint(1) == ""
    patient.down(2)
    assert "no worker holds it now, and no process can be started: its" in patient.complaint(3)
    patient.words[WORKER + WorkerWords.ERRNO] = 0
    assert patient.complaint(4) == "no worker holds it now"


def test_the_reason_for_an_unstartable_collector_is_shown() -> None:
    patient = Patient()
    patient.words[HeaderWords.COLLECTOR_ERRNO] = errno.EAGAIN
    assert "no more processes are allowed" in patient.complaint(1)


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=4
    )
)
def test_a_chain_is_as_its_worst_step(step_values: list[tuple[int, int, int]]) -> None:
    count = len(step_values) + 1
    words = memoryview(bytearray(WORD * ModelWords.SIZE * count)).cast("Q")
    chain, *steps = [ModelHealth(words, n * ModelWords.SIZE, ()) for n in range(count)]
    words_of_health = (ModelWords.DEATHS, ModelWords.UNSTEADY_NS, ModelWords.STUCK_NS)
    for number, values in enumerate(step_values, 1):
        for word, value in zip(words_of_health, values, strict=True):
            words[number * ModelWords.SIZE + word] = value
    chain.as_worst(steps)
    deaths, unsteady_ns, stuck_ns = zip(*step_values, strict=True)
    # A step that is not stuck has 0; a stuck chain is stuck since its steps' earliest instant.
    earliest_ns = min((ns for ns in stuck_ns if ns), default=0)
    assert [words[word] for word in words_of_health] == [max(deaths), max(unsteady_ns), earliest_ns]
