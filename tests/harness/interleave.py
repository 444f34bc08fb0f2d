"""Explorer of all interleavings of what a few small actors do to shared memory.

An actor is real code that touches an instrumented stand-in for the segment's words. It runs in a
greenlet of its own and stops before each load and each store of a single word; `explore` decides
who goes next, and tries every order. A run cannot be wound back, so each new order is a fresh run
of the scenario with the same choices up to the point where it departs.

Two orders that lead to the same memory and to actors that have seen the same values have the same
future, so only one of them is followed; the others are counted. That is exact as long as what an
actor does depends on nothing but the values it loaded.

Two things beyond taking turns can be asked for. In another memory of `memories.py` stores reach
memory later, at times of the explorer's choosing, and loads may return older values; so
`TotalStoreOrder` is x86-64, and `Armv8` AArch64. And an actor with an heir may be killed before
any of its steps; the heir starts where it was killed.

The code under test says what an access is for by `ringbatch.shm.memory_order`; the explorer puts
operations of its own in its place, for any module that a test has not given others.

An actor may sleep at a `Doorbell`. Where only sleepers are left, and nobody to ring for them, the
run is over and is checked as it stands.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import pytest
from memories import Memory, View
from watched_words import (
    NO_WORD,
    Body,
    Doorbell,
    Player,
    WatchedWords,
    copy_late,
    fence,
    have_orders_explored,
    never,
    one,
)

__all__ = [
    "Actor",
    "Body",
    "Doorbell",
    "Explored",
    "Scenario",
    "Violation",
    "Watch",
    "copy_late",
    "explore",
    "fence",
]

Watch = Callable[[memoryview], memoryview]
"""Function that makes the stand-in for some words; the values stay in the real ones."""


@dataclass(frozen=True)
class Actor:
    """A body that runs, and the heir that replaces it if it is killed (None: never killed)."""

    name: str
    body: Body
    heir: Body | None = None


Access = tuple[str, int]
"""A "load" or a "store" of a word."""
Scenario = Callable[[Watch], tuple[Sequence[Actor], Body]]
"""Sets everything up, and returns the actors and the check for when all of them are done."""


class Violation(AssertionError):
    """Some order of steps breaks a property; the text tells the steps."""


@dataclass(frozen=True)
class Explored:
    """Coverage of an exploration: the orders of steps, and the different states."""

    schedules: int
    states: int

    def __str__(self) -> str:
        return f"{self.schedules:,} schedules through {self.states:,} states"


@dataclass(frozen=True, order=True)
class _Choice:
    actor: int
    kind: str = "step"
    option: int = 0
    """Number of the value that a load returns, or of the store that reaches memory."""


class _Run:
    """Execution of a scenario, step by chosen step."""

    def __init__(self, scenario: Scenario, rules: "_Rules") -> None:
        self.acting: Player | None = None
        self.memory_type = rules.memory
        self.relaxed = rules.relaxed
        self._steps: list[tuple[str, tuple[object, ...]]] = []
        self._private = rules.private
        self._words: list[WatchedWords] = []
        actors, self._check = scenario(self._watch)
        self._players = [Player(actor.name, actor.body, actor.heir, run=self) for actor in actors]
        for number in range(len(self._players)):
            self._resume(number)

    @property
    def _memory(self) -> Memory:
        return self._words[0].memory

    def stepping(self, number: int) -> Player | None:
        """Return the actor whose step an access is; None where it is no step, or not an actor's."""
        player = self.acting
        if player is None or (number != NO_WORD and self._private[number] and not player.killed):
            return None
        return player

    def before_step(
        self,
        player: Player,
        asleep: Callable[[View], bool] = never,
        options: Callable[[View], int] = one,
        *,
        is_own: bool = False,
    ) -> None:
        """Wait to be chosen.

        A step that is the actor's own changes nothing that others see, so it is taken at once, as
        no order of it and theirs makes a difference; but its actor may be killed before it.
        """
        if not is_own or player.heir is not None:
            player.asleep, player.options = asleep, options
            player.stop_before_step()

    def tell(self, step: str, *parts: object) -> None:
        """Keep what a step was; it is put into words where an order breaks a property."""
        self._steps.append((step, parts))

    def fence(
        self, player: Player, says: str, kind: Callable[[Memory, View], None], *, full: bool
    ) -> None:
        """Take a fence, full or half; a half one is no step where all memory is in order."""
        memory = self._memory
        if full or memory.has_half_fences:
            asleep = (lambda view: not memory.may_fence(view)) if full else never
            self.before_step(player, asleep=asleep, is_own=not full)
            player.seen += (None,)
            self.tell("{} {}", player.name, says)
            kind(memory, player.view)

    def choices(self) -> list[_Choice]:
        found = []
        for number, player in enumerate(self._players):
            if not player.finished:
                if not player.asleep(player.view):
                    found += [
                        _Choice(number, "step", option)
                        for option in range(player.options(player.view))
                    ]
                if player.heir is not None:
                    found.append(_Choice(number, "kill"))
            if player.view.buffer:
                found += [
                    _Choice(number, "drain", place) for place in self._memory.drainable(player.view)
                ]
        return found

    def take(self, choice: _Choice) -> None:
        player = self._players[choice.actor]
        if choice.kind == "drain":
            stored = self._memory.drain(player.view, choice.option)
            happens = "copy is done" if stored.is_load else "store reaches memory"
            self.tell("{}'s {} at {}", player.name, happens, stored.number)
        elif choice.kind == "kill":
            self._replace(choice.actor)
        else:
            player.option = choice.option
            self._resume(choice.actor)

    def state(self) -> Hashable:
        going = [
            player.view for player in self._players if not player.finished or player.view.buffer
        ]
        return (
            tuple(words.memory.state(going) for words in self._words),
            tuple((p.name, p.finished, p.seen, tuple(p.view.late)) for p in self._players),
        )

    def check(self) -> None:
        try:
            self._check()
        except AssertionError as failure:
            raise self._violation(failure) from failure

    def abandon(self) -> None:
        for player in self._players:
            player.kill()

    def _watch(self, words: memoryview) -> memoryview:
        self._words.append(WatchedWords(self, words))
        return cast(memoryview, self._words[-1])

    def _resume(self, number: int) -> None:
        player = self._players[number]
        player.resume()
        if player.failure is not None:
            raise self._violation(player.failure) from player.failure

    def _replace(self, number: int) -> None:
        dead = self._players[number]
        assert dead.heir is not None
        dead.kill()
        self.tell("{} is killed", dead.name)
        # A dead process's stores still reach memory, before its successor can know of its death.
        self._memory.settle(dead.view)
        # What the dead actor saw stays part of the state, for the check may ask what it did.
        self._players[number] = Player(
            f"{dead.name}'s heir",
            dead.heir,
            None,
            seen=dead.seen,
            view=self._memory.inherit(),
            run=self,
        )
        self._resume(number)

    def _violation(self, failure: BaseException) -> Violation:
        steps = (step.format(*parts) for step, parts in self._steps)
        return Violation("\n  ".join([f"{type(failure).__name__}: {failure}", *steps]))


@dataclass(frozen=True)
class _Rules:
    """Rules of an exploration; see `explore`."""

    private: "_Answers"
    memory: type[Memory]
    relaxed: frozenset[Access]


class _Answers(dict[int, bool]):
    """The answers of a function of words, which it gives once for each."""

    def __init__(self, asked: Callable[[int], bool]) -> None:
        super().__init__()
        self._asked = asked

    def __missing__(self, number: int) -> bool:
        self[number] = answer = self._asked(number)
        return answer


def explore(
    scenario: Scenario,
    *,
    private: Callable[[int], bool] = lambda number: False,
    memory: type[Memory] = Memory,
    relaxed: Iterable[Access] = (),
) -> Explored:
    """Run the scenario in every order that its actors' steps can have.

    Args:
        scenario: sets up one run; called many times, and always to do the same.
        private: the words, by number, whose accesses are no steps because one actor alone
            touches them.
        memory: which memory. A scenario must watch only one where it is not in order.
        relaxed: acquires and releases to leave out.

    Raises:
        Violation: for the first order found in which an actor or the check fails.
    """
    rules = _Rules(_Answers(private), memory, frozenset(relaxed))
    with pytest.MonkeyPatch.context() as patches:
        have_orders_explored(patches)
        return _explored(lambda: _Run(scenario, rules))


def _explored(begin: Callable[[], _Run]) -> Explored:
    following: dict[Hashable, list[Hashable]] = {}
    root: Hashable = None
    pending: list[tuple[Hashable, tuple[_Choice, ...]]] = [(None, ())]
    while pending:
        before, choices = pending.pop()
        run = begin()
        try:
            for choice in choices:
                run.take(choice)
            while True:
                state = run.state()
                if before is None:
                    root = state
                else:
                    following[before].append(state)
                if state in following:
                    break
                following[state] = []
                options = run.choices()
                if not options:
                    run.check()
                    break
                pending += [(state, (*choices, option)) for option in options[1:]]
                before, choices = state, (*choices, options[0])
                run.take(options[0])
        finally:
            run.abandon()
    return Explored(_paths(root, following), len(following))


def _paths(root: Hashable, following: dict[Hashable, list[Hashable]]) -> int:
    """Count the ways from the root to an end; every step makes some history longer."""
    counts: dict[Hashable, int] = {}
    todo = [root]
    while todo:
        state = todo[-1]
        unknown = [after for after in following[state] if after not in counts]
        if unknown:
            todo += unknown
            continue
        todo.pop()
        counts[state] = sum(counts[after] for after in following[state]) or 1
    return counts[root]
