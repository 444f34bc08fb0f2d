"""Every interleaving of what a few small actors do to shared memory.

An actor is real code that touches an instrumented stand-in for the segment's words. It runs in a
greenlet of its own and stops before each load and each store of a single word; `explore` decides
who goes next, and tries every order. A run cannot be wound back, so each new order is a fresh run
of the scenario with the same choices up to the point where it departs.

Two orders that lead to the same memory and to actors that have seen the same values have the same
future, so only one of them is followed; the others are counted. That is exact as long as what an
actor does depends on nothing but the values it loaded.

Two things beyond taking turns can be asked for. With `store_buffers`, each actor's stores reach
memory later, in order, at a time of the explorer's choosing, while the actor itself sees them at
once: the total store order of x86-64 (Sewell et al., "x86-TSO", 2010). And an actor with an heir
may be killed before any of its steps; the heir starts where it was killed.

An actor may sleep at a `Doorbell`. Where only sleepers are left, and nobody to ring for them, the
run is over and is checked as it stands.
"""

from array import array
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, SupportsIndex, cast

from greenlet import getcurrent, greenlet

Body = Callable[[], None]
Watch = Callable[[memoryview], memoryview]
"""Makes the stand-in for some words; the real ones stay the place where values lie."""


@dataclass(frozen=True)
class Actor:
    """A body that runs, and the heir that replaces it if it is killed (None: never killed)."""

    name: str
    body: Body
    heir: Body | None = None


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


class _Killed(BaseException):
    """Unwinds the greenlet of an actor that will not run on."""


@dataclass(frozen=True, order=True)
class _Choice:
    actor: int
    kind: str = "step"


@dataclass
class _Player:
    """One actor in one run; `resume` lets it take a step and go on to just before the next."""

    name: str
    body: Body
    heir: Body | None
    started: bool = False
    finished: bool = False
    failure: BaseException | None = None
    seen: tuple[int | None, ...] = ()
    """The value that each step loaded, None for a store; with the body, the actor's state."""
    buffer: deque[tuple[int, int]] = field(default_factory=deque)
    asleep: Callable[[], bool] = lambda: False
    """Returns whether the actor cannot take its next step."""
    killed: bool = False
    _greenlet: Any = None

    def resume(self) -> None:
        if not self.started:
            self.started = True
            self._greenlet = greenlet(self._run)
            self._greenlet.player = self
        self._greenlet.switch()

    def stop_before_step(self) -> None:
        """Wait to be chosen; a killed actor takes no step, even if its code catches everything."""
        if not self.killed:
            self._greenlet.parent.switch()
        if self.killed:
            raise _Killed

    def kill(self) -> None:
        self.killed = True
        if self.started and not self.finished:
            self.resume()
        self.finished = True

    def _run(self) -> None:
        try:
            self.body()
        except _Killed:
            pass
        except BaseException as failure:
            self.failure = failure
        self.finished = True


_NO_WORD = -1


def fence(words: memoryview) -> None:
    """For the code under test, in place of a full memory fence: one step, after which all earlier
    stores of the actor have reached memory."""
    cast(_Words, words).fence()


class Doorbell:
    """A semaphore in one word: each use is one step and, as on x86-64, a full memory fence.

    Args:
        words: what `Watch` returned.
        number: the word that counts the rings; nothing else may use it.
    """

    def __init__(self, words: memoryview, number: int) -> None:
        self._words = cast(_Words, words)
        self._number = number

    def wake(self) -> None:
        self._words.ring(self._number)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Sleep until rung, and take all rings. No timeout ever ends it: that would rescue who
        sleeps through what he should have heard."""
        self._words.sleep(self._number)
        return True


class _Words:
    """The stand-in: looks like a memoryview of format ``Q`` to the code under test."""

    def __init__(self, run: "_Run", words: memoryview) -> None:
        self._run = run
        self._words = words
        self.stored: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._words)

    def __getitem__(self, index: SupportsIndex | slice) -> "int | _Loaded":
        if isinstance(index, slice):
            numbers = range(*index.indices(len(self._words)))
            return _Loaded([self._load(number) for number in numbers])
        return self._load(int(index))

    def __setitem__(self, index: SupportsIndex | slice, value: "int | array[int]") -> None:
        if isinstance(index, slice):
            numbers = range(*index.indices(len(self._words)))
            for number, item in zip(numbers, cast("array[int]", value), strict=True):
                self._store(number, item)
        else:
            self._store(int(index), cast(int, value))

    def _store(self, number: int, value: int) -> None:
        player = self._run.before_step(number)
        if player is None:
            self._words[number] = value
            return
        player.seen += (None,)
        self._run.steps.append(f"{player.name} stores {value:#x} at {number}")
        if self._run.store_buffers:
            player.buffer.append((number, value))
        else:
            self.commit(number, value)

    def fence(self) -> None:
        player = self._run.before_step(_NO_WORD)
        if player is not None:
            player.seen += (None,)
            self._run.steps.append(f"{player.name} fences")
            self._drain(player)

    def ring(self, number: int) -> None:
        player = self._run.before_step(_NO_WORD)
        if player is not None:
            player.seen += (None,)
            self._run.steps.append(f"{player.name} rings at {number}")
            self._drain(player)
        self.commit(number, self._words[number] + 1)

    def sleep(self, number: int) -> None:
        player = self._run.before_step(_NO_WORD, asleep=lambda: not self._words[number])
        if player is not None:
            player.seen += (None,)
            self._run.steps.append(f"{player.name} wakes at {number}")
            self._drain(player)
        assert self._words[number], "nobody has rung, and nobody ever will"
        self.commit(number, 0)

    def _drain(self, player: _Player) -> None:
        while player.buffer:
            self.commit(*player.buffer.popleft())

    def commit(self, number: int, value: int) -> None:
        self._words[number] = self.stored[number] = value

    def _load(self, number: int) -> int:
        player = self._run.before_step(number)
        if player is None:
            untouched: int = self._words[number]
            return untouched
        value: int = self._words[number]
        for buffered, stored in player.buffer:
            if buffered == number:
                value = stored
        player.seen += (value,)
        self._run.steps.append(f"{player.name} loads {value:#x} from {number}")
        return value


class _Loaded(list[int]):
    """A slice of the words, already loaded."""

    def tolist(self) -> list[int]:
        return list(self)

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other.tolist() if isinstance(other, memoryview) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None


class _Run:
    """One execution of a scenario, step by chosen step."""

    def __init__(
        self, scenario: Scenario, private: Callable[[int], bool], store_buffers: bool
    ) -> None:
        self.store_buffers = store_buffers
        self.steps: list[str] = []
        self._private = private
        self._words: list[_Words] = []
        actors, self._check = scenario(self._watch)
        self._players = [_Player(actor.name, actor.body, actor.heir) for actor in actors]
        for number in range(len(self._players)):
            self._resume(number)

    def before_step(
        self, number: int, asleep: Callable[[], bool] = lambda: False
    ) -> _Player | None:
        """Wait to be chosen; None where the access is no step, or not an actor's."""
        player: _Player | None = getattr(getcurrent(), "player", None)
        if player is None or (number != _NO_WORD and self._private(number) and not player.killed):
            return None
        player.asleep = asleep
        player.stop_before_step()
        return player

    def choices(self) -> list[_Choice]:
        found = []
        for number, player in enumerate(self._players):
            if not player.finished:
                if not player.asleep():
                    found.append(_Choice(number))
                if player.heir is not None:
                    found.append(_Choice(number, "kill"))
            if player.buffer:
                found.append(_Choice(number, "drain"))
        return found

    def take(self, choice: _Choice) -> None:
        player = self._players[choice.actor]
        if choice.kind == "drain":
            number, value = player.buffer.popleft()
            self.steps.append(f"{player.name}'s store at {number} reaches memory")
            self._words[0].commit(number, value)
        elif choice.kind == "kill":
            self._replace(choice.actor)
        else:
            self._resume(choice.actor)

    def state(self) -> Hashable:
        return (
            tuple(frozenset(words.stored.items()) for words in self._words),
            tuple((t.name, t.finished, t.seen, tuple(t.buffer)) for t in self._players),
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
        self._words.append(_Words(self, words))
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
        self.steps.append(f"{dead.name} is killed")
        # A dead process's stores still reach memory, before its successor can know of its death.
        while dead.buffer:
            self._words[0].commit(*dead.buffer.popleft())
        # What the dead actor saw stays part of the state, for the check may ask what it did.
        self._players[number] = _Player(f"{dead.name}'s heir", dead.heir, None, seen=dead.seen)
        self._resume(number)

    def _violation(self, failure: BaseException) -> Violation:
        return Violation("\n  ".join([f"{type(failure).__name__}: {failure}", *self.steps]))


def explore(
    scenario: Scenario,
    *,
    private: Callable[[int], bool] = lambda number: False,
    store_buffers: bool = False,
) -> Explored:
    """Run the scenario in every order that its actors' steps can have.

    Args:
        scenario: sets up one run; called many times, and always to do the same.
        private: the words, by number, whose accesses are no steps because one actor alone
            touches them.
        store_buffers: whether stores reach memory at once or in total store order. A scenario
            must watch only one memory then.

    Raises:
        Violation: for the first order found in which an actor or the check fails.
    """
    following: dict[Hashable, list[Hashable]] = {}
    root: Hashable = None
    pending: list[tuple[Hashable, tuple[_Choice, ...]]] = [(None, ())]
    while pending:
        before, choices = pending.pop()
        run = _Run(scenario, private, store_buffers)
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
