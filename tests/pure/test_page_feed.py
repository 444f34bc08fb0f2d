"""Feed of the page: differences between two samples of an engine, and the history kept of them."""

from dataclasses import replace

import orjson
import pytest
from samples import CLASSES, FIRST, LATER_CLASSES, MODEL, SECOND, WORKER, S, slow, times

from ringbatch.frontend.page.feed import event, marks, second, slowest, state
from ringbatch.frontend.page.history import History
from ringbatch.shm.snapshot.occupancy import OfModel
from ringbatch.shm.snapshot.sample import LaneSample, ModelSample, Sample

WALL_MS = 1_800_000_000_000


def words(before: Sample, now: Sample) -> list[str]:
    return [mark["words"] for mark in marks(before, now)]


def with_model(model: ModelSample, sample: Sample = FIRST) -> Sample:
    return replace(sample, models=(model,))


def test_an_event_is_one_line_of_json_for_any_names() -> None:
    odd = 'm\n\ndata: {"x": 1}\r\nevent: é'
    encoded = event("second", {"models": {odd: {}}}, 17).decode()
    assert encoded.startswith("event: second\nid: 17\ndata: ")
    assert encoded.endswith("\n\n")
    lines = encoded[:-2].split("\n")
    assert [line.partition(":")[0] for line in lines] == ["event", "id", "data"]
    assert orjson.loads(lines[2].partition(" ")[2]) == {"models": {odd: {}}}
    assert event("state", {}) == b"event: state\ndata: {}\n\n"


def test_a_second_has_the_grown_counts_and_no_others() -> None:
    found = second(FIRST, SECOND, WALL_MS)
    assert (found["at"], found["ms"], found["slots"], found["memory"]) == (WALL_MS, 2000, 12, 4096)
    assert found["models"] == {
        "digits": {
            "flight": 12,
            "waiting": 7,
            "expect_ms": 31.0,
            "codes": {"200": 200, "503": 4, "500": 2},
            "times": {"3": 100, "6": 100},
            "closed": {"full": 3, "idle": 1},
            "sizes": {"9-16": 4},
        }
    }
    quiet = replace(MODEL, under_way=OfModel(0, 0, 0.0), answer_ms=0.0)
    still = second(with_model(quiet), with_model(quiet, SECOND), WALL_MS)
    assert still["models"] == {"digits": {}}


def test_a_second_has_the_counts_of_each_class_of_requests() -> None:
    before = with_model(replace(MODEL, classes=CLASSES))
    now = with_model(replace(MODEL, classes=LATER_CLASSES), SECOND)
    assert second(before, now, WALL_MS)["models"]["digits"]["classes"] == {
        "interactive": [200, 200.0, 250.0, 0],
        "bulk": [2, 10_000.0, 750.0, 4],
    }


def test_a_model_that_came_in_between_has_no_counts_of_others() -> None:
    found = second(replace(FIRST, models=()), SECOND, WALL_MS)["models"]["digits"]
    assert set(found) == {"flight", "waiting", "expect_ms"}


def test_counts_that_fell_are_left_out() -> None:
    anew = replace(MODEL, codes={"200": 1}, times=(1, *MODEL.times[1:3], 2, *MODEL.times[4:]))
    found = second(FIRST, with_model(anew, SECOND), WALL_MS)["models"]["digits"]
    assert "codes" not in found
    assert found["times"] == {"0": 1}


def test_the_state_says_how_things_are() -> None:
    encoded = state(FIRST, SECOND, {"digits": "no worker holds it now"}, {"version": "1.2.3"})
    assert (encoded["engine"], encoded["pid"], encoded["state"]) == ("prod", 7, "ready")
    assert (encoded["version"], encoded["ready_ms"]) == ("1.2.3", 92_000)
    assert encoded["lanes"] == [[12, 4096]]
    (model,) = encoded["models"]
    assert (model["ready"], model["running"], model["spares"]) == (1, 2, 1)
    assert (model["oldest_ms"], model["why"]) == (250.0, "no worker holds it now")
    (worker,) = encoded["workers"]
    assert (worker["batches"], worker["rows"], worker["busy"]) == (2.0, 100.0, 0.5)


@pytest.mark.parametrize(
    ("sample", "word"),
    [
        (SECOND, "ready"),
        (replace(SECOND, ready_ns=0), "starting"),
        (replace(SECOND, stops=True), "stopping"),
    ],
)
def test_an_engine_starts_is_ready_and_stops(sample: Sample, word: str) -> None:
    assert state(None, sample, {}, {})["state"] == word


DIED = replace(MODEL, deaths={"crashed": 2, "killed": 1, "hung": 0})
MARKS: dict[str, tuple[Sample, Sample, list[str]]] = {
    "nothing": (FIRST, SECOND, []),
    "deaths": (
        FIRST,
        with_model(DIED, SECOND),
        ["2 workers of digits crashed", "a worker of digits killed"],
    ),
    "another process": (
        FIRST,
        replace(SECOND, workers=(replace(WORKER, pid=4712),)),
        ["worker 4 of digits started as process 4712"],
    ),
    "no process": (FIRST, replace(SECOND, workers=(replace(WORKER, pid=0),)), []),
    "a new worker": (replace(FIRST, workers=()), SECOND, []),
    "a new model": (replace(FIRST, models=()), SECOND, ["digits is there, serving"]),
    "a model that is gone": (FIRST, replace(SECOND, models=()), ["digits is gone"]),
    "a model that changes": (
        FIRST,
        with_model(replace(MODEL, state="retiring"), SECOND),
        ["digits is retiring"],
    ),
    "a frontend": (
        FIRST,
        replace(SECOND, restarts={"a frontend killed": 1, "a collector hung": 1}),
        ["a frontend killed, and started again"],
    ),
    "a collector": (
        FIRST,
        replace(SECOND, collectors=2),
        ["another process is the collector"],
    ),
    "ready": (replace(FIRST, ready_ns=0), SECOND, ["the engine is ready"]),
    "the end": (FIRST, replace(SECOND, stops=True), ["the engine stops"]),
}


@pytest.mark.parametrize(("before", "now", "expected"), MARKS.values(), ids=MARKS)
def test_deaths_starts_and_changes_are_marked(
    before: Sample, now: Sample, expected: list[str]
) -> None:
    assert words(before, now) == expected


def test_a_slow_request_has_its_time_for_people_which_stays_the_same() -> None:
    for later_ms in (0, 1, 999):
        now_ns = 100 * S + later_ms * 1_000_000
        (encoded,) = slowest([slow()], now_ns, WALL_MS + later_ms)
        assert encoded["at"] == WALL_MS - 10_000
        assert (encoded["ms"], encoded["phases"]) == (3.5, {"queue": 0.5, "run": 3.0})
        assert (encoded["id"], encoded["cause"], encoded["batch_rows"]) == ("r-1", "batch", 4)


def filled(history: History, *times_ms: int) -> History:
    for at_ms in times_ms:
        history.add(at_ms, b"%d." % at_ms)
    return history


def test_the_past_begins_behind_the_known_event() -> None:
    history = filled(History(), 10, 20, 30)
    assert history.after(0, 1000) == (30, b"10.20.30.")
    assert history.after(10, 1000) == (30, b"20.30.")
    assert history.after(25, 1000) == (30, b"30.")
    assert history.after(30, 1000) == (30, b"")
    assert History().after(7, 1000) == (7, b"")


def test_the_past_comes_in_pieces() -> None:
    history = filled(History(), 10, 20, 30)
    assert history.after(0, 6) == (20, b"10.20.")
    assert history.after(20, 6) == (30, b"30.")
    assert history.after(0, 1) == (10, b"10."), "one at least"


def test_events_beyond_the_span_or_the_limit_are_forgotten() -> None:
    assert filled(History(span_ms=20), 10, 20, 30, 40).after(0, 1000)[1] == b"30.40."
    assert filled(History(max_bytes=7), 10, 20, 30, 40).after(0, 1000)[1] == b"30.40."
    assert filled(History(max_bytes=1), 10, 20).after(0, 1000)[1] == b"20.", "the last one stays"


def test_memory_of_lanes_is_given_for_all_of_them_together() -> None:
    lanes = (LaneSample(1, 100), LaneSample(2, 200))
    found = second(FIRST, replace(SECOND, lanes=lanes), WALL_MS)
    assert (found["slots"], found["memory"]) == (3, 300)


PARTED = replace(MODEL, in_parts=True, firsts=times(b2=5), gaps=times(b1=7, b2=1))
LATER = replace(PARTED, firsts=times(b2=6, b4=2), gaps=times(b1=7, b2=11, b3=4))


def test_a_second_says_when_parts_came() -> None:
    found = second(with_model(PARTED), with_model(LATER, SECOND), WALL_MS)["models"]["digits"]
    assert found["firsts"] == {"2": 1, "4": 2}
    assert found["gaps"] == {"2": 10, "3": 4}


def test_the_state_says_which_models_answer_in_parts() -> None:
    for model in (MODEL, PARTED):
        (model_state,) = state(None, with_model(model), {}, {})["models"]
        assert model_state["parts"] is model.in_parts
