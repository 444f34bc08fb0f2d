"""Top level of `ringbatch tune`: starts the engine with one choice after another, and measures."""

import math
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from ringbatch.bench.command.main import expect_readable, flags_for, print_progress, quiet
from ringbatch.bench.command.settings import Settings
from ringbatch.bench.command.subject import find
from ringbatch.bench.load.arrivals import Arrivals, Kind
from ringbatch.bench.load.child import GeneratorDied
from ringbatch.bench.load.outcome import Outcome, words_of
from ringbatch.bench.report.slo import Slo
from ringbatch.bench.report.words import number, table
from ringbatch.bench.served.engine import started
from ringbatch.bench.served.failures import CannotMeasure
from ringbatch.bench.tuning.candidate import Values
from ringbatch.bench.tuning.choices import NOT_IN_STEPS, choices_for, flags_of, settings_of, toml_of
from ringbatch.bench.tuning.proof import PAIRS_LEAST
from ringbatch.bench.tuning.search import Estimate, Search, Trial

_WARM_UP: Final = 0.5
"""Warm-up, as a share of a unit of measurement."""
_BATCHES: Final = 10
"""Times that a run lasts a request's usual time, at least: it has a figure though one ends amid a
batch."""
_GRACE_S: Final = 5.0
_PATIENCE: Final = 4
"""Times a request's usual time, for which answers are waited for in any case."""
FIRST_LEVEL: Final = 16
"""Connections that are tried first, where nothing is known."""
_STEP: Final = 4
_LEVEL_MAX: Final = 1024
_GAIN_LEAST: Final = 1.03
"""Least ratio of rates that more connections must reach, or still more are not tried."""
_LOST_MAX: Final = 0.01


@dataclass(frozen=True)
class Goal:
    """Goal of a search: the model, the limit and the budget.

    Attributes:
        config: the configuration as it is.
        bench: model, request, protocol and headers, as for a measurement.
        slo: the limits of the p99s; without any, as many requests as possible, however long each
            takes.
        budget_s: after which no further trial begins.
        keep: settings that stay as they are.
        present: the settings as they are, as far as they are known.
        unit_s: how long the shortest run is.
    """

    config: Path
    bench: Settings
    slo: Slo
    budget_s: float
    keep: Sequence[str]
    present: Values = field(default_factory=dict)
    unit_s: float = 1.0


@dataclass(frozen=True)
class Throughput:
    """Highest rate of a server.

    Attributes:
        rate_per_s: 0 if it is unknown, or no number of connections is within the limit.
        connections: that reached it.
        words: the same, or why there is none.
        remedy: how to get one, if that is known.
        in_steps: whether the model works in steps.
    """

    rate_per_s: float
    connections: int
    words: str
    remedy: str = ""
    in_steps: bool = False


def limits_of(
    p99_ms: float | None, slo_first_part_ms: float | None = None, slo_gap_ms: float | None = None
) -> Slo:
    """Return the limits of a search, in milliseconds; None for none.

    Args:
        p99_ms: of the whole answer.
        slo_first_part_ms: of its first part.
        slo_gap_ms: of the gap between two parts.
    """
    return Slo(p99_ms, slo_first_part_ms, slo_gap_ms)


def tune(goal: Goal) -> int:
    """Find settings, and print them; progress on standard error.

    Called in the main thread, as it handles SIGTERM like Ctrl-C.

    Returns:
        The exit status, 0.

    Raises:
        CannotMeasure: not even the settings as they are can be measured.
    """
    earlier_handler = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        expect_readable(goal.bench)
        quiet(goal.bench)
        search = Search(choices_for(len(os.sched_getaffinity(0)), goal.keep), goal.present)
        print_progress(f"this takes {goal.budget_s:.0f} s at most, and one trial more")
        model = ask_for_all(goal, search)
    finally:
        signal.signal(signal.SIGTERM, earlier_handler)
    print(result_text(search, model, goal.slo))
    return 0


def result_text(search: Search, model: str, slo: Slo) -> str:
    """Return the result for people, with the configuration to paste."""
    best, ratio = search.best()
    target = f" with {slo.words}" if slo.limits else ""
    rows = [_row(one) for one in search.estimates()]
    lines = table(("all else as chosen", "requests/s by the chosen", "trials of that"), rows)
    some = "1 run" if search.pairs == 1 else f"{search.pairs} runs"
    runs = f"{some} of it beside as many of the settings as they are"
    if best:
        lead = f"{ratio:.2f} times the requests/s{target}, as measured in {runs}, with"
        return "\n".join([*lines, "", lead, "", toml_of(best, model)])
    perhaps, ratio = search.promising()
    if not perhaps:
        return "\n".join([*lines, "", "nothing that was tried is worth a change"])
    changes = _in_words(settings_of(perhaps))
    proof = f"{runs} do not prove that" if search.pairs else "there was no time to prove that"
    return "\n".join(
        [
            *lines,
            "",
            f"nothing is proven to be worth a change: {changes} may make about {ratio:.2f} times "
            f"the requests/s{target}, and {proof}",
        ]
    )


def _row(one: Estimate) -> tuple[str, str, str]:
    """Return the table cells of a value: its words, its ratio, and its number of trials."""
    if one.ratio is None:
        return _in_words(one.values), "cannot be measured", str(one.trials or "")
    if one.trials:
        return _in_words(one.values), f"{one.ratio:.2f}", str(one.trials)
    return _in_words(one.values), f"about {one.ratio:.2f}", "none, estimated from others"


def throughput(run: Callable[[int], Outcome], slo: Slo, first: int = FIRST_LEVEL) -> Throughput:
    """Return the most requests/s of a closed loop within the limit, over numbers of connections.

    Args:
        run: a closed loop with so many connections.
        slo: the limits.
        first: how many connections are tried first.
    """
    best = Throughput(0.0, first, "nothing was answered")
    level, tried, least = first, set[int](), math.inf
    while 1 <= level <= _LEVEL_MAX and level not in tried:
        tried.add(level)
        outcome = run(level)
        lost = 1 - float(outcome.answered.mean()) if outcome.count else 1.0
        if lost > _LOST_MAX:
            if best.rate_per_s:
                break
            ends = ", ".join(f"{words_of(s)} ({n})" for s, n in outcome.counts().items())
            why = f"requests were not answered: {ends or 'none was sent'}"
            best = Throughput(0.0, first, why)
            level //= _STEP
            continue
        rate = outcome.rate_per_s()
        late = slo.lateness(figures := p99s_ms(outcome))
        held = late <= 1
        if not best.rate_per_s and not held and late < least:
            least = late
            best = _too_late(slo, figures, level)
        # More connections make more requests/s, until they only wait for one another.
        more = held and rate > _GAIN_LEAST * best.rate_per_s
        if held and rate > best.rate_per_s:
            best = Throughput(rate, level, f"{number(rate)} requests/s from {level} connections")
        level = level * _STEP if more else level // _STEP
    return best


def p99s_ms(outcome: Outcome) -> dict[str, float]:
    """Return the p99s of a run by the names that limits have for them, however few samples."""
    times = {
        "p99 ms": outcome.times(),
        "first p99 ms": outcome.first_parts(),
        "gap p99 ms": outcome.gaps(),
    }
    return {name: each.quantile_ns(0.99) / 1e6 for name, each in times.items() if each.total}


def _too_late(slo: Slo, figures: Mapping[str, float], connections: int) -> Throughput:
    """Return that no number of connections is within the limits, with the least p99s so far."""
    several = "" if connections == 1 else "s"
    words = (
        f"no number of connections has {slo.words}: "
        f"the best has {slo.measured_words(figures)}, with {connections} connection{several}"
    )
    return Throughput(0.0, connections, words, f"; raise {slo.flags} above that, or leave it out")


def ask_for_all(goal: Goal, search: Search) -> str:
    """Measure what a search asks for until it knows enough or the time is over.

    Returns:
        The name of the model.

    Raises:
        CannotMeasure: not even the settings as they are can be measured.
    """
    began, longest_s, number_of, model = time.monotonic(), 0.0, 0, goal.bench.model
    level = FIRST_LEVEL
    while (trial := search.next()) is not None:
        now = time.monotonic()
        left_s = goal.budget_s - (now - began)
        if model is not None and left_s < longest_s:
            print_progress("the time is over; what was found so far counts")
            break
        if model is not None and left_s < longest_s * (1 + 2 * PAIRS_LEAST) and search.conclude():
            print_progress("what is left of the time is for the proof of what was found")
            continue
        number_of += 1
        name = _in_words(settings_of(trial.candidate)) or "as it is"
        try:
            model, found = measured(goal, model, trial, level)
        except (CannotMeasure, GeneratorDied) as error:
            if number_of == 1:
                raise CannotMeasure(str(error)) from None
            found = Throughput(0.0, level, str(error).splitlines()[-1])
        if number_of == 1:
            if not found.rate_per_s:
                raise CannotMeasure(f"the configuration as it is: {found.words}{found.remedy}")
            # What is tried then is like it, so that fewer connections need not be tried.
            level = found.connections
            if found.in_steps and search.leave_out(NOT_IN_STEPS):
                print_progress(f"the model works in steps: {NOT_IN_STEPS} has no effect on it")
        search.tell(trial, found.rate_per_s)
        left_s = max(goal.budget_s - (time.monotonic() - began), 0)
        print_progress(f"trial {number_of}, {left_s:.0f} s left: {name}: {found.words}")
        longest_s = max(longest_s, time.monotonic() - now)
    assert model is not None
    return model


def measured(
    goal: Goal, model: str | None, trial: Trial, first: int = FIRST_LEVEL
) -> tuple[str, Throughput]:
    """Start the engine with a trial's settings, and ask it.

    Args:
        goal: the task of tuning.
        model: its name; None where that is not known yet.
        trial: the settings, and for how long.
        first: how many connections are tried first.

    Returns:
        The model's name, and its requests/s.

    Raises:
        CannotMeasure: it does not start, or refuses.
        GeneratorDied: a process that generates load has ended.
    """
    flags = flags_of(trial.candidate)
    if model is not None and settings_of(trial.candidate).keys() - {"frontends"}:
        flags += ["--name", model]
    warm_up_s = goal.unit_s * _WARM_UP
    with started(goal.config, flags_for(goal.bench) + flags) as served:
        subject = find(served, replace(goal.bench, model=model))
        with subject.fleet(goal.bench.generators) as fleet:

            def ask(seconds: float, connections: int, took_s: float) -> Outcome:
                grace_s = max(_GRACE_S, _PATIENCE * took_s)
                return fleet.run(Arrivals(Kind.CLOSED, seconds), connections, grace_s)

            took_s = _usual_s(ask(warm_up_s, first, 0.0))
            if took_s > warm_up_s:
                # Its first batches may have taken far longer than all that follow.
                took_s = _usual_s(ask(warm_up_s, first, took_s))
            seconds = max(goal.unit_s, _BATCHES * took_s) * trial.effort
            found = throughput(lambda level: ask(seconds, level, took_s), goal.slo, first)
            return subject.model, replace(found, in_steps=subject.in_steps())


def _usual_s(outcome: Outcome) -> float:
    """Return the median of a run's times; 0 if there are none."""
    times = outcome.times()
    return times.quantile_ns(0.5) / 1e9 if times.total else 0.0


def _in_words(values: Values) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items())
