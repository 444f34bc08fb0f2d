"""Random life of an engine: its clients, its misfortunes, and what must hold nevertheless.

Everything follows from the seed. Each life draws first what may happen in it at all, so that some
lives have much of one misfortune and none of another (Groce et al., "Swarm testing", 2012).

What must hold:

    every request whose frontend lives is answered once, with its own values or an error that was
    its due, and no later than `TOLERANCE_NS` after its deadline, not counting what its frontend was
    stopped for
    nobody sleeps beside work while time passes, see `rest.check_sleepers`
    a model that is said to be ready refuses nothing for want of a worker, and where none is to be
    expected nothing waits for one
    no model without a request under way is refused for slots that another has
    a model knows the accounts of the requests that wait for it, and no others
    no DONE is stored but by who holds the request, and no payload changes while it is in flight
    no account has more in flight than it may, and the collector counts each of its requests
    what a chain answers has passed its steps in their order, and where nothing happens each once
    a client gets the parts of an answer one after the other from the first on, each once and whole,
    and as soon as they are out; its answer ends well only behind the last; who wants no parts gets
    all of them
    of a model in steps, no row is live twice, none beside more than there are places, and none
    beside others that run again; live rows cost no more than they may, no two have one number, and
    none begins before one that came earlier; each state is ended once; workers and collector agree
    on which rows are live; nothing waits beside a free place, and no row for another that is paused
    in the end every slot and all memory is free, and each model answers as if nothing had been
"""

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from simulation.asked import (
    FATAL,
    HANGING,
    HARMLESS,
    LARGE,
    NOT_READY,
    POISON,
    REFUSED,
    STATUSES,
    TEXTS,
    Asked,
    padding,
)
from simulation.copied import check_copy
from simulation.engine import FRONTENDS, HOSTILE_LANE, SLOTS, Engine, Frontend
from simulation.hostile import HostileLane
from simulation.installed import host
from simulation.limited import LIMIT_REACHED, LimitedAccounts
from simulation.machine import MILLISECOND_NS, SECOND_NS, Machine, Process
from simulation.parted import (
    CUT_OFF,
    END,
    check_end,
    ends_amid_parts,
    is_untaken,
    parts_wanted,
    rows_at_most,
    take_part,
)
from simulation.predicting import Models
from simulation.profiles import Profile
from simulation.rest import check_conservation, check_sleepers, is_at_rest, is_ready
from simulation.served import (
    ADDED,
    CHAINED,
    PARTED,
    SERVED,
    SPREADING,
    STEPPED,
    TYPED,
    instances,
    is_numeric,
    numbers_in,
    steps_of,
)
from simulation.stepping import BEGINS, MOST_PLACES, Kind

from ringbatch.engine.collector.dead_batches import MAX_DEATHS
from ringbatch.frontend.codec.outcome import Answer
from ringbatch.frontend.request.parts_task import InParts
from ringbatch.frontend.request.service import Service
from ringbatch.shm.descriptors import SlotWords
from ringbatch.shm.model_spec import ModelSpec

TOLERANCE_NS: Final = 100 * MILLISECOND_NS
ASKED_A_CHAIN: Final = "asked a chain"
ASKED_FOR_PARTS: Final = "asked for parts"
ASKED_FOR_STEPS: Final = "asked for steps"
PLACES_CHANGED: Final = "places changed"
NONE_TO_EXPECT: Final = "no worker was to be expected"
LOAD_FAILED: Final = "a load failed"
"""Events that are no misfortunes, as is a limit that is reached; all others are."""
SERVED_BY_NS: Final = 20 * MILLISECOND_NS
_SETTLED_IN_NS: Final = 20 * SECOND_NS
_MISFORTUNES_AT_MOST: Final = 8
_TURNS_AT_MOST: Final = 200_000
_WANT_PARTS: Final = 0.7
"""Share of the requests to a model that has them."""


class Life:
    """An engine, and everything that happens to it.

    Args:
        seed: decides all.
        profile: events that may happen; by default the seed decides that too.
        trace: whether to keep what happened.
    """

    def __init__(self, seed: int, profile: Profile | None = None, *, trace: bool = False) -> None:
        self._chance = chance = random.Random(seed)
        chains = random.Random(f"chains of {seed}")
        self._loads = random.Random(f"loads of {seed}")
        limits = random.Random(f"limits of {seed}")
        self._parts = parts = random.Random(f"parts of {seed}")
        self._steps = steps = random.Random(f"steps of {seed}")
        costs = random.Random(f"costs of {seed}")
        leads = random.Random(f"leads of {seed}")
        drawn = Profile.of(chance, chains, self._loads, limits, parts, steps, costs, leads)
        self.profile = drawn if profile is None else profile
        self.machine = Machine(chance, self.profile.stride, self._misfortune)
        self.machine.trace = [] if trace else None
        self.asked: list[Asked] = []
        self.ends: Counter[int] = Counter()
        self.seen: Counter[str] = Counter()
        """Number of events, by kind."""
        self._calm = False
        self.story: list[str] = []
        """The events, step by step, if they are kept."""
        self._misfortunes = 0
        self._rates = {
            "worker": (self.profile.kills_of_workers, self.profile.stops_of_workers),
            "collector": (self.profile.kills_of_collectors, self.profile.stops_of_collectors),
            "frontend": (self.profile.kills_of_frontends, self.profile.stops_of_frontends),
        }
        self._longest_cycle_ns = 0
        unchained = chance.choice(SERVED)
        specs = chains.choice(CHAINED) if self.profile.chained else unchained
        self._specs = specs = parts.choice(PARTED) if self.profile.in_parts else specs
        self._specs = specs = steps.choice(STEPPED) if self.profile.in_steps else specs
        self._models = Models(self.machine, chance, self.profile, self.asked)
        self.engine = Engine(
            self.machine,
            chance,
            specs,
            self._models.predict,
            self._models.stepping,
            self._frontend_lost,
            self._load_fails,
            loads=self.profile.loads,
            limits=self.profile.limits,
            lead_ns=self.profile.lead_ns,
            dies_of=self._models.dies_of,
            copies_ns=self._models.copies_ns,
        )
        self._models.engine = self.engine
        self._models.kind = Kind.of(steps, costs, limited=self.profile.costs)
        self._limited = LimitedAccounts(self.engine)
        self._hostile = HostileLane(
            self.engine.segment, self.engine.raw, HOSTILE_LANE, random.Random(seed)
        )

    def run(self) -> None:
        """Live, and come to rest.

        Raises:
            AssertionError: something that must hold does not.
        """
        host.machine = self.machine
        try:
            self._plan_arrivals()
            self._run_until(self._all_arrived)
            self._calm = True
            self.machine.note("from here on nothing happens any more")
            self._run_until(self._at_rest)
            self._check_conservation()
            self._probe()
        finally:
            self.story = self.machine.trace or []
            self.machine.close()

    # What happens

    def _plan_arrivals(self) -> None:
        at_ns = SERVED_BY_NS
        for _ in range(self.profile.requests):
            self.machine.after(at_ns, self._arrival)
            at_ns += int(self._chance.random() * 2 * self.profile.gap_ns)
        self._arriving = self.profile.requests

    def _all_arrived(self) -> bool:
        return not self._arriving

    def _arrival(self) -> None:
        self._arriving -= 1
        chance, profile = self._chance, self.profile
        if chance.random() < profile.hostile:
            self.seen["hostile"] += 1
            self._hostile.act(self.machine.now_ns)
            self.engine.collector_bell.poke()
        if chance.random() < profile.cancels:
            self._cancel_one()
        if profile.changes and self._steps.random() < profile.changes:
            self._change_places()
        frontend = self.engine.frontends[int(chance.random() * FRONTENDS)]
        if frontend.process is None:
            return
        kind = HARMLESS
        if chance.random() < profile.strange:
            kind = chance.choice([LARGE, REFUSED, POISON])
        elif chance.random() < profile.fatal:
            kind = chance.choice([FATAL, HANGING])
        model = chance.choice(self._specs)
        if model.typed and model.chain is None and kind == LARGE:
            kind = HARMLESS
        timeout_ns = model.timeout_ns
        if chance.random() < profile.short_deadlines:
            timeout_ns = chance.choice([1, 10, 100, 1000]) * MILLISECOND_NS
        rows = chance.choice([1, 1, 1, 1, 1, 2, 3, 10])
        if chance.random() < profile.alike:
            model, rows = TYPED, 1
        if model.name == SPREADING.name:
            # Those of one answer are equally long, so they must have shared a batch.
            rows = 1
        self._ask(frontend, kind, model, rows, timeout_ns)

    def _ask(
        self, frontend: Frontend, kind: int, model: ModelSpec, rows: int, timeout_ns: int
    ) -> Asked:
        assert frontend.process is not None
        number = 10 * (len(self.asked) + 1) + kind
        asked = Asked(
            number,
            kind,
            model,
            rows,
            frontend,
            frontend.process,
            self.engine.deaths,
            timeout_ns,
            frontend.process.lost_ns,
        )
        if model.chain is not None:
            self.seen[ASKED_A_CHAIN] += 1
            asked.at = self._chance.randrange(len(model.chain.steps))
        if model.in_parts:
            self._draw_parts(asked)
        self.asked.append(asked)
        asked.body = json.dumps({"instances": instances(model, number, asked.rows)}).encode()
        frontend.deliver(lambda service: self._predict(service, asked))
        return asked

    def _draw_parts(self, asked: Asked) -> None:
        """Draw whether a request wants parts, and before which it does what its kind does."""
        asked.wants_parts = self._parts.random() < _WANT_PARTS
        first = BEGINS if asked.model.places else 0
        asked.at = self._parts.randrange(first, parts_wanted(asked))
        self.seen[ASKED_FOR_STEPS if asked.model.places else ASKED_FOR_PARTS] += asked.wants_parts
        if asked.wants_parts or asked.kind == LARGE:
            asked.rows = min(asked.rows, rows_at_most(asked))
        elif asked.model.places:
            # Each is a slot.
            asked.rows = min(asked.rows, 3)

    def _change_places(self) -> None:
        """Change the number of rows that workers of the model in steps run at once."""
        self.seen[PLACES_CHANGED] += 1
        places = self._steps.choice(range(1, MOST_PLACES + 1))
        self.machine.note(f"there are {places} places")
        self.engine.publish(
            tuple(replace(m, places=places) if m.places else m for m in self._specs)
        )

    def _predict(self, service: Service, asked: Asked) -> None:
        """Read a request from its connection, in the frontend's process."""
        if asked.gone:
            return
        machine = self.machine
        machine.note(f"request {asked.number} comes to frontend {asked.frontend.number}")
        asked.deaths = self.engine.deaths
        asked.ready = is_ready(self.engine, asked.model)
        asked.lost_ns = asked.by.lost_ns
        begun_ns = machine.now_ns
        call = service.predict(
            asked.model.name,
            asked.body,
            lambda answer: self._reply(asked, answer),
            asked.timeout_ns,
            in_parts=InParts(partial(take_part, asked), END) if asked.wants_parts else None,
        )
        asked.due_ns = (begun_ns + asked.timeout_ns, machine.now_ns + asked.timeout_ns)
        if not asked.status:
            asked.call = call

    @property
    def _stood_still(self) -> bool:
        """True if batches may have taken any time."""
        return any("stopped" in kind or "lost" in kind for kind in self.seen)

    def _reply(self, asked: Asked, answer: Answer) -> None:
        status, body, headers = answer
        assert not asked.gone, f"request {asked.number} is answered, which was cancelled"
        assert not asked.status, f"request {asked.number} is answered twice"
        now_ns = self.machine.now_ns
        self.machine.note(f"request {asked.number} gets {status} {body[:90]!r}")
        asked.status = status
        asked.call = None
        self.ends[status] += 1
        first_ns, last_ns = asked.due_ns
        if last_ns:
            late_ns = now_ns - last_ns - (asked.by.lost_ns - asked.lost_ns)
            assert late_ns <= TOLERANCE_NS, f"request {asked.number} is late by {late_ns} ns"
        allowed = STATUSES[asked.kind] | ends_amid_parts(asked)
        assert status in allowed, f"request {asked.number} ends with {status}: {body!r}"
        if status == 429:
            self.seen[LIMIT_REACHED] += 1
            self._limited.refused(body, headers)
        has_text = any(text in body for text in TEXTS.get(status, (b"",)))
        is_right = has_text and rb"\u0000" not in body
        is_right = is_right or (self._stood_still and is_untaken(asked, body))
        assert is_right, f"request {asked.number} ends with {status}, but {body!r}"
        if NOT_READY in body:
            self.seen[NONE_TO_EXPECT] += 1
            assert not asked.ready or self.engine.deaths > asked.deaths, (
                f"request {asked.number} is refused by a model that was said to be ready"
            )
        if asked.model.in_parts:
            check_end(asked, answer)
        elif status == 200:
            assert self._values(asked, json.loads(body)) == [asked.number] * asked.rows
            self._expect_each_step_once(asked)
            service = asked.frontend.service
            assert service is not None
            check_copy(asked, service.engine.outcomes.last().stamps)
        if status == 504 and first_ns and not self._stood_still:
            # Where much waits, what would be late is given up by so much earlier.
            self._note_cycles()
            early_ns = first_ns - now_ns - self._longest_cycle_ns
            assert early_ns <= TOLERANCE_NS, f"request {asked.number} is given up early"
        elif b"max_in_flight" in body:
            self._expect_its_slots_taken(asked)
        elif b"died" in body and CUT_OFF not in body and asked.kind not in (FATAL, HANGING):
            died = self.engine.deaths - asked.deaths
            assert died >= MAX_DEATHS, f"request {asked.number}: {died} workers died"
            assert self.engine.sigkills, f"request {asked.number} is blamed for another one"

    def _values(self, asked: Asked, answer: dict[str, Any]) -> list[int]:
        """The number of the request that each row of an answer belongs to."""
        rows = answer["predictions"]
        if is_numeric(asked.model):
            return numbers_in(asked.model, rows)
        pad = padding(asked.number)
        assert all((row["added"], row["pad"]) == (ADDED, pad) for row in rows)
        return [row["n"] for row in rows]

    def _expect_its_slots_taken(self, asked: Asked) -> None:
        """Check that no model without a request under way is refused because of another.

        Only a former owner's requests may have the slots of all.
        """
        lane = asked.frontend.lane
        assert lane is not None
        under_way = any(
            other.model is asked.model and other.by is asked.by and not (other.status or other.gone)
            for other in self.asked
        )
        first = self.engine.segment.layout.slot(lane.index * SLOTS) + SlotWords.MODEL
        models = {self.engine.raw[first + s * SlotWords.SIZE] for s in lane._expected.values()}
        idle = not under_way and asked.model.reference not in models
        assert self.seen["killed frontend"] or not idle, (
            f"request {asked.number} is refused, and nothing else of its model is under way"
        )

    def _expect_each_step_once(self, asked: Asked) -> None:
        """Assert that nothing ran twice if nobody died or was cut short, and no model raised."""
        alike = all(other.kind == HARMLESS for other in self.asked)
        calm = self.seen.keys() <= {ASKED_A_CHAIN, ASKED_FOR_PARTS, ASKED_FOR_STEPS}
        if alike and calm and is_numeric(asked.model):
            wanted = dict.fromkeys(range(len(steps_of(asked.model))), asked.rows)
            assert asked.runs == wanted, f"request {asked.number} passes steps {asked.runs}"

    def _cancel_one(self) -> None:
        open_calls = [asked for asked in self.asked if not (asked.status or asked.gone)]
        if not open_calls:
            return
        asked = self._chance.choice(open_calls)
        self.seen["cancelled"] += 1

        def gone(_service: Service) -> None:
            if not asked.status:
                self.machine.note(f"the client of request {asked.number} goes away")
                asked.gone = True
                if asked.call is not None:
                    asked.call.abandon()
                    asked.call = None

        asked.frontend.deliver(gone)

    def _frontend_lost(self, frontend: Frontend) -> None:
        for asked in self.asked:
            if asked.frontend is frontend and not asked.status:
                asked.gone = True
                asked.call = None

    def _load_fails(self, number: int) -> bool:
        """Return whether a worker ends before it is ready; never one of an engine's first."""
        if self._calm or not self.engine.was_ready(number):
            return False
        fails = self._loads.random() < self.profile.failing_loads
        self.seen[LOAD_FAILED] += fails
        return fails

    def _misfortune(self, process: Process) -> None:
        """Decide what happens to a process that has given way in mid-step."""
        if self._calm or self._misfortunes == _MISFORTUNES_AT_MOST:
            return
        chance = self._chance
        role = self.engine.role(process)
        killed, stopped = self._rates[role]
        drawn = chance.random()
        if drawn < killed:
            happened = f"killed {role}"
            self.engine.kill(process)
        elif drawn < killed + stopped:
            happened = f"stopped {role}"
            self.machine.stop(process, chance.choice([5, 50, 600, 3_000]) * MILLISECOND_NS)
        elif drawn < killed + stopped + self.profile.lost_time:
            happened = "lost time"
            self.machine.lose_time(chance.choice([5, 500, 5_000]) * MILLISECOND_NS)
        else:
            return
        self.seen[happened] += 1
        self._misfortunes += 1

    # Letting it run

    def _run_until(self, done: Callable[[], bool]) -> None:
        machine = self.machine
        give_up_ns = machine.now_ns + _SETTLED_IN_NS
        for _ in range(_TURNS_AT_MOST):
            if machine.turn():
                continue
            assert not self._models.violation, self._models.violation
            self._note_cycles()
            check_sleepers(self.engine)
            self._limited.check()
            if done():
                return
            next_ns = machine.next_ns()
            assert next_ns is not None, f"everybody sleeps for ever, but {self._left()}"
            assert next_ns < give_up_ns, f"nothing happens any more, but {self._left()}"
            machine.now_ns = max(next_ns, machine.now_ns)
        raise AssertionError(f"no end: {self._left()}")

    def _note_cycles(self) -> None:
        if self.engine.collector is not None:
            cycles_ns = [model.times.cycle_ns for model in self.engine.collector._models.values()]
            self._longest_cycle_ns = max(self._longest_cycle_ns, *cycles_ns)

    def _left(self) -> str:
        waiting = [asked.number for asked in self.asked if not (asked.status or asked.gone)]
        lanes = [f.lane.in_flight for f in self.engine.frontends if f.lane is not None]
        return f"requests {waiting} wait, slots in flight {lanes}"

    def _at_rest(self) -> bool:
        answered = all(asked.status or asked.gone for asked in self.asked)
        return answered and is_at_rest(self.engine, self._specs)

    # The end

    def _check_conservation(self) -> None:
        answered = sum(bool(asked.status) for asked in self.asked)
        gone = sum(asked.gone for asked in self.asked)
        assert answered + gone == len(self.asked) == sum(self.ends.values()) + gone
        hangs = self._stood_still or any(asked.kind == HANGING for asked in self.asked)
        check_conservation(self.engine, self._specs, hangs=hangs)

    def _probe(self) -> None:
        """Check that everything works as at first, with no account's limit reached any more."""
        for frontend in self.engine.frontends:
            for model in self._specs:
                self.machine.now_ns += self._limited.refill_ns
                asked = self._ask(frontend, HARMLESS, model, 1, model.timeout_ns)
                self._run_until(self._at_rest)
                assert asked.status == 200, f"afterwards, a request ends with {asked.status}"
