"""Words that the explorer watches: what the code under test takes for the segment's.

Each access to one is a step of the actor that makes it, see `interleave.py`.
"""

import sys
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Protocol, SupportsIndex, cast

import pytest
from greenlet import getcurrent, greenlet
from memories import Armv8, Memory, Stored, View

from ringbatch.shm import memory_order, model_spec

Body = Callable[[], None]


def never(view: View) -> bool:
    return False


def one(view: View) -> int:
    return 1


class Killed(BaseException):
    """Exception that unwinds the greenlet of an actor that will not run on."""


@dataclass
class Player:
    """Actor of a run; `resume` lets it take a step and go on to just before the next."""

    name: str
    body: Body
    heir: Body | None
    started: bool = False
    finished: bool = False
    failure: BaseException | None = None
    seen: tuple[int | None, ...] = ()
    """The value that each step loaded, None for a store; with the body, the actor's state."""
    view: View = field(default_factory=View)
    run: "Turns | None" = None
    asleep: Callable[[View], bool] = never
    """Returns whether the actor cannot take its next step."""
    options: Callable[[View], int] = one
    """Returns how many outcomes its next step may have."""
    option: int = 0
    """Outcome chosen for the next step."""
    killed: bool = False
    _greenlet: Any = None

    def resume(self) -> None:
        if not self.started:
            self.started = True
            self._greenlet = greenlet(self._run)
            self._greenlet.player = self
        if self.run is None:
            self._greenlet.switch()
            return
        self.run.acting = self
        self._greenlet.switch()
        self.run.acting = None

    def stop_before_step(self) -> None:
        """Wait to be chosen; a killed actor takes no step, even if its code catches everything."""
        if not self.killed:
            self._greenlet.parent.switch()
        if self.killed:
            raise Killed

    def kill(self) -> None:
        self.killed = True
        if self.started and not self.finished:
            self.resume()
        self.finished = True

    def _run(self) -> None:
        try:
            self.body()
        except Killed:
            pass
        except BaseException as failure:
            self.failure = failure
        self.finished = True


class Turns(Protocol):
    """The run that the actors take their turns in.

    Attributes:
        acting: whose turn it is; None while a run is set up or checked.
    """

    acting: Player | None
    memory_type: type[Memory]
    relaxed: frozenset[tuple[str, int]]

    def stepping(self, number: int) -> Player | None: ...

    def before_step(
        self,
        player: Player,
        asleep: Callable[[View], bool] = never,
        options: Callable[[View], int] = one,
        *,
        is_own: bool = False,
    ) -> None: ...

    def tell(self, step: str, *parts: object) -> None: ...

    def fence(
        self, player: Player, says: str, kind: Callable[[Memory, View], None], *, full: bool
    ) -> None: ...


NO_WORD = -1


def fence() -> None:
    """Stand-in for a full memory fence in the code under test.

    It is one step, after which all earlier stores of the actor have reached memory.
    """
    _fence("fences", lambda memory, view: memory.fence(view), full=True)


def _half_fence(kind: Callable[[Memory, View], None]) -> Callable[[], None]:
    def fence_half() -> None:
        _fence("fences by half", kind)

    return fence_half


def _fence(says: str, kind: Callable[[Memory, View], None], *, full: bool = False) -> None:
    player: Player | None = getattr(getcurrent(), "player", None)
    if player is not None and player.run is not None:
        player.run.fence(player, says, kind, full=full)


def _load_acquire(words: memoryview, word: int) -> int:
    return acquiring(words)[word]


def _store_release(words: memoryview, word: int, value: int) -> None:
    releasing(words)[word] = value


def acquiring(words: Any) -> memoryview:
    """Return a view of words whose loads acquire, as a stand-in in the code under test."""
    return cast(memoryview, _Acquiring(words) if isinstance(words, WatchedWords) else words)


def releasing(words: Any) -> memoryview:
    """Return a view of words whose stores release, as a stand-in in the code under test."""
    return cast(memoryview, _Releasing(words) if isinstance(words, WatchedWords) else words)


_ORDERS: Final[dict[str, Callable[..., object]]] = {
    "full_fence": fence,
    "acquire_fence": _half_fence(lambda memory, view: memory.acquire_fence(view)),
    "release_fence": _half_fence(lambda memory, view: memory.release_fence(view)),
    "acquiring": acquiring,
    "releasing": releasing,
    "load_acquire": _load_acquire,
    "store_release": _store_release,
}


_THEIRS: Final = {name: getattr(memory_order, name) for name in _ORDERS}


def have_orders_explored(patches: pytest.MonkeyPatch) -> None:
    """Replace acquires, releases and fences of the code under test by the explorer's.

    Every order begins with the same models, whose entries it need not write and read anew.
    """
    for name in ("line_of", "entry_of"):
        patches.setattr(model_spec, name, cache(getattr(model_spec, name)))
    for name, module in list(sys.modules.items()):
        if name.startswith("ringbatch."):
            for operation, own in _ORDERS.items():
                if getattr(module, operation, None) is _THEIRS[operation]:
                    patches.setattr(module, operation, own)


class Doorbell:
    """A semaphore in one word: each use is one step and, as on x86-64, a full memory fence; on
    AArch64 to ring is a release and to wake an acquire.

    Args:
        words: the words that `Watch` returned.
        number: the word that counts the rings; nothing else may use it.
    """

    def __init__(self, words: memoryview, number: int) -> None:
        self._words = cast(WatchedWords, words)
        self._number = number

    def wake(self) -> None:
        self._words.ring(self._number)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Sleep until rung, and take all rings. No timeout ever ends it: that would rescue who
        sleeps through what he should have heard."""
        self._words.sleep(self._number)
        return True


class WatchedWords:
    """The stand-in: looks like a memoryview of format ``Q`` to the code under test."""

    def __init__(self, run: "Turns", words: memoryview) -> None:
        self._run = run
        self._words = words
        self.memory = run.memory_type(words)

    def __len__(self) -> int:
        return len(self._words)

    def __getitem__(self, index: SupportsIndex | slice) -> "int | Loaded":
        return self.load(index, acquires=False)

    def __setitem__(self, index: SupportsIndex | slice, value: "int | array[int]") -> None:
        # Half of all accesses: each order begins with a segment that is set up.
        if self._run.acting is None and not isinstance(index, slice):
            self.memory.put(index, value)  # type: ignore[arg-type]
        elif isinstance(index, slice):
            if self._run.stepping(NO_WORD) is None:
                self._words[index] = cast("array[int]", value)
                return
            numbers = range(*index.indices(len(self._words)))
            for number, item in zip(numbers, cast("array[int]", value), strict=True):
                self.store(number, item)
        else:
            self.store(index, value)  # type: ignore[arg-type]

    def cast(self, format_: str) -> memoryview:
        """Return them in another format, unwatched, for what no two actors touch at once."""
        return self._words.cast("B") if format_ == "B" else self._words

    def load(self, index: SupportsIndex | slice, *, acquires: bool) -> "int | Loaded":
        if self._run.acting is None and not isinstance(index, slice):
            untouched: int = self._words[index]
            return untouched
        if isinstance(index, slice):
            if self._run.stepping(NO_WORD) is None:
                return Loaded(self._words[index])
            numbers = range(*index.indices(len(self._words)))
            return Loaded([self._load(number, acquires=acquires) for number in numbers])
        return self._load(int(index), acquires=acquires)

    def store(self, number: int, value: int, *, releases: bool = False) -> None:
        player = self._run.stepping(number)
        if player is None:
            self.memory.put(number, value)
            return
        self._run.before_step(player, is_own=self.memory.buffers)
        player.seen += (None,)
        how = " with release" if releases else ""
        self._run.tell("{} stores {:#x} at {}{}", player.name, value, number, how)
        releases = releases and ("store", number) not in self._run.relaxed
        self.memory.store(player.view, Stored(number, value, releases))

    def ring(self, number: int) -> None:
        player = self._run.stepping(NO_WORD)
        if player is None:
            self.memory.put(number, self._words[number] + 1)
            return
        self._run.before_step(player, asleep=lambda view: not self.memory.may_fence(view))
        player.seen += (None,)
        self._run.tell("{} rings at {}", player.name, number)
        self.memory.post(player.view, number)

    def sleep(self, number: int) -> None:
        player = self._run.stepping(NO_WORD)
        if player is not None:
            self._run.before_step(player, asleep=lambda view: not self._words[number])
        assert self._words[number], "nobody has rung, and nobody ever will"
        if player is None:
            self.memory.put(number, 0)
            return
        player.seen += (None,)
        self._run.tell("{} wakes at {}", player.name, number)
        self.memory.wait(player.view, number)

    def copy_late(self, number: int) -> "Late":
        memory = self.memory
        assert isinstance(memory, Armv8)
        player = self._run.stepping(number)
        assert player is not None, "only actors copy"
        self._run.before_step(player, options=lambda view: memory.readable(view, number) + 1)
        player.seen += (None,)
        place = memory.copy(player.view, number, player.option)
        self._run.tell("{} copies {} from {}", player.name, player.view.late[place], number)
        return Late(player.view, place)

    def _load(self, number: int, *, acquires: bool) -> int:
        player = self._run.stepping(number)
        if player is None:
            untouched: int = self._words[number]
            return untouched
        self._run.before_step(player, options=lambda view: self.memory.readable(view, number))
        acquires = acquires and ("load", number) not in self._run.relaxed
        value = self.memory.load(player.view, number, player.option, acquires=acquires)
        player.seen += (value,)
        how = " with acquire" if acquires else ""
        self._run.tell("{} loads {:#x} from {}{}", player.name, value, number, how)
        return value


class _Acquiring:
    """The stand-in for words whose loads acquire."""

    def __init__(self, words: WatchedWords) -> None:
        self._words = words

    def __getitem__(self, index: SupportsIndex | slice) -> "int | Loaded":
        return self._words.load(index, acquires=True)


class _Releasing:
    """The stand-in for words whose stores release."""

    def __init__(self, words: WatchedWords) -> None:
        self._words = words

    def __setitem__(self, index: SupportsIndex, value: int) -> None:
        self._words.store(int(index), value, releases=True)


class Late:
    """A word that was copied, or is to be; the test asks for its value when all are done."""

    def __init__(self, view: View, place: int) -> None:
        self._view = view
        self._place = place

    @property
    def value(self) -> int:
        found = self._view.late[self._place]
        assert found is not None, "not copied yet"
        return found


def copy_late(words: memoryview, number: int) -> Late:
    """Act as code under test that copies a word's bytes, in a weak memory."""
    return cast(WatchedWords, words).copy_late(number)


class Loaded(list[int]):
    """A slice of the words, already loaded."""

    def tolist(self) -> list[int]:
        return list(self)

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other.tolist() if isinstance(other, memoryview) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None
