"""The page on batches: its timelines are what the collector does, its limits are the code's."""

import re
from typing import Final

import pytest
from documents.pages import blocks, table, text_of
from documents.timelines import play, read

from ringbatch.engine.collector import lingering
from ringbatch.engine.collector.models import NEXT_FROM_NS, NEXT_UP_TO_NS
from ringbatch.engine.ipc.shaping import worthwhile_rows
from ringbatch.engine.worker.cost_splitting import bounded
from ringbatch.shm.engine_slots import Request
from ringbatch.shm.slot import Reason

PAGE: Final = "docs/explanation/batches.md"
MS: Final = 1_000_000
DRAWINGS: Final = {block.name: block.text for block in blocks(PAGE)}
EARLY: Final = "early-binding"


@pytest.mark.parametrize("name", sorted(DRAWINGS.keys() - {EARLY}))
def test_the_collector_follows_the_timeline(name: str) -> None:
    assert play(read(DRAWINGS[name])) == DRAWINGS[name]


def test_early_binding_makes_the_small_batches_that_the_page_shows() -> None:
    first, scale, arrive, _ = DRAWINGS[EARLY].splitlines()
    window, run = (int(number) for number in re.findall(r"\d+", first))
    origin = scale.index("0")
    waiting = [(at - origin, letter) for at, letter in enumerate(arrive) if at >= origin]
    waiting = [(at, letter) for at, letter in waiting if letter != " "]
    line, free = "worker".ljust(origin), 0
    while waiting:
        closes = waiting[0][0] + window
        letters = "".join(letter for at, letter in waiting if at <= closes)
        waiting = waiting[len(letters) :]
        began = max(closes, free)
        free = began + run
        line = line.ljust(origin + began) + f"[{letters.ljust(run - 2, '-')}]"
    assert "\n".join([first, scale, arrive, line]) == DRAWINGS[EARLY]
    assert f"after {free} ms instead of" in text_of(PAGE)


def test_every_reason_for_which_a_batch_closes_is_explained() -> None:
    assert {row[0].strip("`") for row in table(PAGE, "reason")} == {r.name.lower() for r in Reason}


def test_the_limits_are_those_of_the_code() -> None:
    text = " ".join(text_of(PAGE).split())
    assert f"its runs take {NEXT_FROM_NS // MS} to {NEXT_UP_TO_NS // MS} ms" in text
    assert f"a fixed cost of {lingering.COSTLY_NS // MS} ms or more" in text
    assert f"for less than {lingering.MOST_NS // MS} ms" in text


@pytest.mark.parametrize("row", table(PAGE, "`max_batch_cost`"), ids="-".join)
def test_instances_of_unlike_cost_run_in_the_parts_that_the_page_shows(row: list[str]) -> None:
    most, costs, runs = row
    named = [pair.split() for pair in costs.split(", ")]
    by_cost = sorted((float(cost), place) for place, (_, cost) in enumerate(named))
    parts = bounded([(cost, request(place)) for cost, place in by_cost], float(most))
    names = [" ".join(named[one.ref][0] for one in part) for part in parts]
    assert ", then ".join(names) == runs


@pytest.mark.parametrize("row", table(PAGE, "rows that wait"), ids="-".join)
def test_a_batch_closes_at_the_size_that_the_page_shows(row: list[str]) -> None:
    waiting, sizes, costs, taken = ([int(text) for text in cell.split(", ")] for cell in row)
    assert [worthwhile_rows(waiting[0], sizes, costs)] == taken


def request(ref: int) -> Request:
    return Request(ref, 0, 1, 0, 0, 0, 0, 0, 0, 0)
