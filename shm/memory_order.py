"""Memory order: acquire, release and the full fence, on x86-64 and on AArch64.

The words of the segment are plain memory. A store that publishes others must not be seen before
them, and a load that relies on it must come before the loads that it allows. Names are those of
C11 (ISO/IEC 9899:2011, sections 5.1.2.4 and 7.17.3):

    release   every earlier load and store is done before this store is seen
    acquire   this load is done before every later load and store
    full      every earlier store is seen before any later load is done

The column "order" of `ringbatch.shm.descriptors` says which of them each word takes.

x86-64 keeps stores in order and loads in order, so its plain accesses release and acquire. A load
may overtake an earlier store there (Intel SDM volume 3, section "Memory Ordering"), so the full
fence is needed. AArch64 keeps no order between plain accesses (Arm Architecture Reference Manual,
section B2.3). A compiled installation has a small extension for C11's operations.

Without it a lock is the fence. Taking and dropping it executes locked instructions on x86-64,
which no load passes. On AArch64 the lock's release is a store-release, and the acquire after it a
load-acquire; both keep their order, everything before stays before the release, and everything
behind stays behind the acquire ("barrier-ordered-before": [L]; po; [A]). Acquire and then release
would let both sides slip in between. So the lock is taken and dropped twice, since one that is
kept taken between calls would not do for threads.
"""

import importlib
import os
import threading
from array import array
from collections.abc import Callable
from types import ModuleType
from typing import Final, cast

KEEPS_ORDER: Final = os.uname().machine == "x86_64"
"""True on processors that keep stores in order, and loads."""
_LOCK: Final = threading.Lock()
_take: Final = _LOCK.acquire
_drop: Final = _LOCK.release


def _fence_of_x86() -> None:
    # A `with` takes twice as long.
    _take()
    _drop()


def _fence_of_any() -> None:
    _take()
    _drop()
    _take()
    _drop()


def _no_fence() -> None:
    pass


def _let_go() -> None:
    """Replace the lock in a forked child, since a thread of the parent may have held it."""
    if _LOCK.locked():
        _drop()


os.register_at_fork(after_in_child=_let_go)


def _extension() -> ModuleType | None:
    """Return C11's operations if the installation is a compiled one; else None."""
    try:
        return importlib.import_module("ringbatch.shm._memory_order")
    except ImportError:
        return None


_atomics: Final = _extension()

Fence = Callable[[], None]


def _fences(atomics: ModuleType | None, *, keeps_order: bool) -> tuple[Fence, Fence, Fence]:
    """Return the full fence, and those of acquire and release.

    Args:
        atomics: C11's operations; None without them.
        keeps_order: whether the processor keeps stores in order, and loads.
    """
    by_lock = _fence_of_x86 if keeps_order else _fence_of_any
    full = by_lock if atomics is None else atomics.full_fence
    if keeps_order:
        return full, _no_fence, _no_fence
    if atomics is None:
        return full, full, full
    return full, atomics.acquire_fence, atomics.release_fence


full_fence, acquire_fence, release_fence = _fences(_atomics, keeps_order=KEEPS_ORDER)
"""The first lets every earlier store be seen before any later load is done. The second has every
earlier load done before what follows, the third what precedes done before any later store."""


class AcquiringWords:
    """Words whose loads acquire.

    Args:
        words: of the segment, of format ``Q``.
    """

    __slots__ = ("_words",)

    def __init__(self, words: memoryview) -> None:
        self._words = words

    def __getitem__(self, index: int | slice) -> int | memoryview:
        """Return a word, or a copy of several."""
        words = self._words
        if isinstance(index, slice):
            found: int | memoryview = memoryview(array("Q", words[index].tolist()))
        else:
            found = words[index]
        acquire_fence()
        return found


class ReleasingWords:
    """Words whose stores release.

    Args:
        words: of the segment, of format ``Q``.
    """

    __slots__ = ("_words",)

    def __init__(self, words: memoryview) -> None:
        self._words = words

    def __setitem__(self, index: int, value: int) -> None:
        release_fence()
        self._words[index] = value


def acquiring(words: memoryview) -> memoryview:
    """Return words of the segment whose loads acquire; those of a slice are copied, in any order.

    Without a cost on x86-64, where they are the words themselves.
    """
    if KEEPS_ORDER:
        return words
    made = AcquiringWords(words) if _atomics is None else _atomics.AcquiringWords(words)
    return cast(memoryview, made)


def releasing(words: memoryview) -> memoryview:
    """Return words of the segment whose stores of single words release."""
    if KEEPS_ORDER:
        return words
    made = ReleasingWords(words) if _atomics is None else _atomics.ReleasingWords(words)
    return cast(memoryview, made)


def load_acquire(words: memoryview, word: int) -> int:
    """Load a word, with acquire, if that is too rare for `acquiring`."""
    value: int = words[word]
    acquire_fence()
    return value


def store_release(words: memoryview, word: int, value: int) -> None:
    """Store a word, with release, if that is too rare for `releasing`."""
    release_fence()
    words[word] = value


def begin_change(words: memoryview, stamp: int, value: int = 0) -> None:
    """Store a record's stamp before its other words; `store_release` of the next one ends it.

    Args:
        words: of the segment.
        stamp: the word that says which record the others are.
        value: what no reader takes for a record.
    """
    words[stamp] = value
    release_fence()


def is_unchanged(words: memoryview, stamp: int, value: int) -> bool:
    """Return whether what was loaded since the stamp was is of one record.

    Args:
        words: of the segment.
        stamp: the word that says which record the others are.
        value: what `load_acquire` returned of it before.
    """
    acquire_fence()
    now: int = words[stamp]
    return now == value
