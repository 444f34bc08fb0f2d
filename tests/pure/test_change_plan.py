"""Steps of a change of one model, and the model tables that they lead to."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.config.settings import ModelConfig
from ringbatch.engine.process.role_events import Signature
from ringbatch.engine.supervisor.change_plan import (
    Capacity,
    ChangeFailed,
    ChangePhase,
    ChangePlan,
    expect_over,
    with_new_workers,
)
from ringbatch.engine.supervisor.model_diff import Change, compare
from ringbatch.engine.supervisor.model_versions import Entries, Forwarding, first_entries
from ringbatch.shm.model_spec import LOADING, MOST_PLACES, RETIRING, SERVING
from ringbatch.shm.tensor import Tensor

SIGNATURE = Signature((), ())
OTHER = Signature((Tensor("x", "FP32", [1]),), ())
MOST = Capacity(workers=32, models=16)


def model(version: str = "1", name: str = "m", **more: Any) -> ModelConfig:
    found = ModelConfig(name=name, version=version, runtime="python", path=Path("/m.py"))
    return replace(found, **more)


def serving(*models: ModelConfig) -> Entries:
    workers = sum(model.processes for model in models)
    return first_entries(models, dict.fromkeys(range(workers), SIGNATURE), Forwarding())


def planned(change: Change, entries: Entries) -> ChangePlan:
    taken = {number for spec in entries for number in spec.workers}
    return ChangePlan.of(change, entries).numbered(set(range(MOST.workers)) - taken)


def signatures(plan: ChangePlan) -> dict[str, list[Signature]]:
    return {version: [SIGNATURE] * len(team) for version, team in plan.started.items()}


@pytest.mark.parametrize("places", [1, 0])
def test_a_model_in_steps_has_no_more_places_than_a_worker_can_have(places: int) -> None:
    """Its worker goes on, and would not look at them again."""
    old = model(max_batch_size=2)
    entries = tuple(replace(spec, places=2 * places) for spec in serving(old))
    for size in (MOST_PLACES, MOST_PLACES + 1):
        (change,) = compare([old], [model(max_batch_size=size)], lambda _: False)
        assert change.adjust
        plan = planned(change, entries)
        if places and size > MOST_PLACES:
            with pytest.raises(ChangeFailed, match=r"which is 2049, must be .* from 1 to 2048"):
                plan.expect_places()
        else:
            plan.expect_places()


def test_another_number_of_places_is_for_new_workers_of_a_model_that_gets_row_numbers() -> None:
    old = [model(max_batch_size=2), model("2", max_batch_size=2), model("3", max_batch_size=2)]
    entries = tuple(
        replace(spec, places=2, max_batch_size=1, numbered=spec.version != "3")
        for spec in serving(*old)
    )
    new = [
        model(max_batch_size=3),
        model("2", max_batch_size=2, timeout_s=9.0),
        model("3", max_batch_size=3),
    ]
    (change,) = compare(old, new, lambda _: False)
    assert (change.load, change.adjust) == ((), tuple(new))
    found = with_new_workers(change, entries)
    assert (found.load, found.adjust) == ((new[0],), (new[1], new[2]))
    assert found.described() == "m: version 1 loaded, version 2 adjusted, version 3 adjusted"
    # An entry that retires says nothing of the one that serves.
    gone = replace(entries[1], places=1, state=RETIRING, generation=9)
    assert with_new_workers(change, (*entries, gone)).load == (new[0],)
    assert with_new_workers(change, ()) == change


@pytest.mark.parametrize("phase", ChangePhase)
@pytest.mark.parametrize(
    ("complete", "failures", "words"),
    [
        (True, [], None),
        (True, ["", ""], None),
        (True, ["", "no memory"], "no memory"),
        (False, ["no memory", "no disk"], "no memory"),
        (False, [""], "late"),
        (False, [], "late"),
    ],
)
def test_how_a_phase_ends(
    phase: ChangePhase, complete: bool, failures: list[str], words: str | None
) -> None:
    if words is None:
        expect_over(phase, complete=complete, failures=failures)
        return
    with pytest.raises(ChangeFailed) as failed:
        expect_over(phase, complete=complete, failures=failures)
    assert str(failed.value) == (phase.late if words == "late" else words)


@pytest.mark.parametrize(
    ("change", "teams"),
    [
        (Change("m", load=(model(workers=3, spares=1),)), {"1": 4}),
        (Change("m", adjust=(model(workers=5),)), {"1": 3}),
        (Change("m", adjust=(model(workers=1),)), {}),
        (Change("m", adjust=(model(workers=2, policy="fixed"),)), {}),
        (Change("m", retire=("1",)), {}),
    ],
)
def test_workers_are_started_for_loaded_and_growing_models(
    change: Change, teams: dict[str, int]
) -> None:
    assert ChangePlan.of(change, serving(model(workers=2))).teams == teams


@pytest.mark.parametrize(
    ("most", "words"),
    [
        (Capacity(4, 2), None),
        (Capacity(3, 2), "it needs 2 more workers; there is room for 3, and 2 are in use"),
        (Capacity(4, 1), "it needs 1 more models; there is room for 1, and 1 are in use"),
    ],
)
def test_there_may_never_be_room_for_it(most: Capacity, words: str | None) -> None:
    entries = serving(model(workers=2))
    plan = ChangePlan.of(Change("m", load=(model(workers=2),)), entries)
    if words is None:
        plan.expect_room(entries, most)
        return
    with pytest.raises(ChangeFailed, match=words):
        plan.expect_room(entries, most)


@pytest.mark.parametrize(
    ("change", "ever"),
    [
        (Change("m", adjust=(model(workers=(1, 7)),)), 12),
        (Change("m", load=(model(workers=(0, 5), spares=2),)), 12),
        (Change("n", load=(model(name="n", workers=6),)), 16),
        (Change("o", adjust=(model(name="o", workers=(1, 5)),)), None),
        (Change("o", retire=("1",)), None),
        (Change("m", adjust=(model(workers=(1, 5)),), running={"1": 5}), None),
    ],
)
def test_there_is_to_be_room_for_all_that_the_load_may_want(
    change: Change, ever: int | None
) -> None:
    entries = serving(model(workers=(1, 5)), model(name="o", workers=(0, 4), spares=1))
    plan, most = ChangePlan.of(change, entries), Capacity(workers=11, models=16)
    if ever is None:
        plan.expect_room(entries, most)
        return
    with pytest.raises(ChangeFailed, match=f"there may be {ever} workers"):
        plan.expect_room(entries, most)


@pytest.mark.parametrize(
    ("change", "size"),
    [
        (Change("m", adjust=(model(workers=(1, 8)),)), 5),
        (Change("m", adjust=(model(workers=(1, 8)),), running={"1": 7}), 8),
        (Change("m", adjust=(model(workers=(1, 8)),), running={"1": 0}), 2),
        (Change("m", adjust=(model(workers=(6, 8)),)), 7),
        (Change("m", adjust=(model(workers=(1, 2)),)), 3),
        (Change("m", load=(model(workers=(1, 8)),)), 5),
        (Change("m", load=(model("2", workers=(0, 8)),)), 2),
    ],
)
def test_a_range_keeps_the_running_workers_within_its_bounds(change: Change, size: int) -> None:
    change = replace(
        change,
        load=tuple(replace(m, spares=1) for m in change.load),
        adjust=tuple(replace(m, spares=1) for m in change.adjust),
    )
    entries = serving(model(workers=4, spares=1))
    plan = planned(change, entries)
    version = (*change.load, *change.adjust)[0].version
    assert plan.sizes[version] == size
    if change.adjust:
        switched = plan.switched(entries, ())
        (spec,) = switched.entries
        assert len(spec.workers) == size
        assert len(switched.leaving) == max(5 - size, 0)


def test_further_workers_are_counted_on_from_those_that_there_are() -> None:
    change = Change("m", load=(model("2", workers=2),), adjust=(model(workers=3),))
    plan = planned(change, serving(model(workers=2)))
    starts = [(number, each.version, index) for number, each, index in plan.starts()]
    assert starts == [(2, "2", 0), (3, "2", 1), (4, "1", 2)]


@pytest.mark.parametrize(
    ("change", "found", "agrees"),
    [
        (Change("m", load=(model(workers=2),)), [OTHER, OTHER], True),
        (Change("m", load=(model(workers=2),)), [OTHER, SIGNATURE], False),
        (Change("m", adjust=(model(workers=3),)), [SIGNATURE, SIGNATURE], True),
        (Change("m", adjust=(model(workers=3),)), [OTHER, OTHER], False),
    ],
)
def test_workers_of_one_version_must_find_the_same(
    change: Change, found: list[Signature], agrees: bool
) -> None:
    plan = planned(change, serving(model()))
    if agrees:
        plan.expect_agreement({"1": found})
        return
    with pytest.raises(ChangeFailed, match="outputs; run ringbatch reload --model m"):
        plan.expect_agreement({"1": found})


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        Change("m", load=(model(workers=2),)),
        Change("m", load=(model("2"), model("3"))),
        Change("m", adjust=(model(workers=4),)),
        Change("m", load=(model("2"),), adjust=(model(workers=3),)),
        Change("m", adjust=(model(workers=1, policy="fixed"),)),
        Change("m", load=(model("2"),), retire=("1",)),
        Change("m", retire=("1",)),
    ],
    ids=["anew", "two more", "grows", "one more, one grows", "shrinks", "another", "none"],
)
def test_an_undone_change_leaves_only_the_changes_of_others(change: Change, beside: bool) -> None:
    entries = serving(model(workers=2), model(name="other", workers=2))
    plan = planned(change, entries)
    new = plan.loading(entries, signatures(plan), Forwarding(), models=MOST.models, generation=1)
    during = plan.entered(entries, new.values())
    assert bool(plan.started) == (during != entries)
    if beside:
        entries, during = without_other(entries), without_other(during)
    assert set(plan.undone(during)) == set(entries)
    assert set(plan.undone(entries)) == set(entries), "where it fails before it is entered"


def without_other(entries: Entries) -> Entries:
    return tuple(spec for spec in entries if spec.name != "other")


versions = st.sampled_from(["1", "2", "3"])
models = st.builds(
    model,
    versions,
    workers=st.integers(1, 3),
    spares=st.integers(0, 1),
    threads=st.integers(1, 2),
    timeout_s=st.sampled_from([1.0, 2.0]),
)
several = st.lists(models, min_size=1, max_size=3, unique_by=lambda model: model.version)


@given(before=several, after=several, other=st.booleans(), anew=st.booleans())
def test_a_serving_model_goes_on_until_the_wanted_one_serves(
    before: list[ModelConfig], after: list[ModelConfig], other: bool, anew: bool
) -> None:
    entries = serving(*before, *([model(name="other", workers=2)] if other else []))
    beside = {spec for spec in entries if spec.name == "other"}
    for change in compare(before, after, lambda _: anew):
        plan = planned(change, entries)
        new = plan.loading(
            entries, signatures(plan), Forwarding(), models=MOST.models, generation=1
        ).values()
        during = plan.entered(entries, new)
        # While a change is entered, all served models keep their references and their workers.
        for spec in entries:
            (still,) = (one for one in during if one.reference == spec.reference)
            assert (still.state, still.workers[: len(spec.workers)]) == (SERVING, spec.workers)
        assert {spec.state for spec in new} <= {LOADING}
        assert len({spec.index for spec in during}) == len(during)
        assert set(plan.undone(during)) == set(entries)
        switched = plan.switched(during, new)
        own = [spec for spec in switched.entries if spec.name == "m" and spec.state == SERVING]
        found = {spec.version: len(spec.workers) for spec in own}
        assert found == {one.version: one.processes for one in after}
        assert beside <= set(switched.entries)
        retiring = {spec.reference for spec in switched.entries if spec.state == RETIRING}
        assert retiring == set(switched.gone)
        # Each worker serves, or is let go, and none does both.
        serves = [n for spec in switched.entries if spec.state == SERVING for n in spec.workers]
        every = {n for spec in during for n in spec.workers}
        assert sorted([*serves, *switched.leaving]) == sorted(every)
