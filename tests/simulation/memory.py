"""Memory between processes of a `Machine`, which may give way before any word they store.

Words, bytes, packed headers and numpy's items are stored word after word, also where one call of
the code under test stores many. Of a process that is killed no further store arrives.
"""

import struct
from collections.abc import Callable
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray
from simulation.machine import Machine

from ringbatch.shm.layout import WORD
from ringbatch.shm.strided_view import StridedView

Check = Callable[[int, int], object]
"""Called with number and value of a word, before a process stores it."""


def watched(
    machine: Machine, words: memoryview, check: Check, counters: range, *, loads: bool = False
) -> memoryview:
    """Words of format ``Q``.

    Args:
        machine: machine whose processes store them.
        words: memory of the words.
        check: see `Check`.
        counters: the numbers of those on which nobody acts; to store one is no step, or most steps
            would be such, and the others rarely meet.
        loads: whether a process may have to give way before it loads some, too.
    """

    class Words:
        __getitem__ = words.__getitem__
        __len__ = words.__len__

        def __setitem__(self, where: int | slice, value: Any) -> None:
            if machine.current is not None:
                if isinstance(where, slice):
                    for number, item in zip(range(*where.indices(len(words))), value, strict=True):
                        self[number] = item
                    return
                if where not in counters:
                    machine.step()
                    check(where, value)
            elif machine.unwinding:
                return
            words[where] = value

    def load(_self: Words, where: Any) -> Any:
        machine.step()
        return words[where]

    class LoadedWords(Words):
        __getitem__ = load

    return cast(memoryview, LoadedWords() if loads else Words())


class Memory(np.ndarray[Any, Any]):
    """Bytes; whatever takes a buffer takes this as the memory itself."""

    machine: Machine
    raw: memoryview

    @staticmethod
    def of(machine: Machine, raw: memoryview) -> "Memory":
        """Return a machine's view of bytes."""
        memory = np.frombuffer(raw, np.uint8).view(Memory)
        memory.machine, memory.raw = machine, raw
        return memory

    def __getitem__(self, where: Any) -> Any:
        return self.raw[where]

    def __setitem__(self, where: Any, data: Any) -> None:
        machine = self.machine
        if machine.current is not None:
            size = len(data)
            if not machine.steps_at_once(-(-size // WORD)):
                self._store_by_words(where.start, bytes(data))
                return
        elif machine.unwinding:
            return
        self.raw[where] = data

    def _store_by_words(self, start: int, data: bytes) -> None:
        for at in range(0, len(data), WORD):
            self.machine.step()
            word = data[at : at + WORD]
            self.raw[start + at : start + at + len(word)] = word


class Packed:
    """A `struct.Struct` that packs into a `Memory` as others store bytes there."""

    def __init__(self, packed: struct.Struct) -> None:
        self._packed = packed
        self.size: Final = packed.size
        self.pack = packed.pack
        self.unpack = packed.unpack
        self.unpack_from = packed.unpack_from

    def pack_into(self, memory: Memory, start: int, *values: Any) -> None:
        """See `struct.Struct.pack_into`."""
        memory[start : start + self.size] = self._packed.pack(*values)


class Items:
    """Items of a strided array over a `Memory`, stored one after the other."""

    def __init__(self, memory: Memory, items: NDArray[Any]) -> None:
        self._memory = memory
        self._items = items
        self._first = items.ctypes.data - memory.ctypes.data
        self._size = items[0].nbytes

    def __getitem__(self, which: Any) -> NDArray[Any]:
        chosen: NDArray[Any] = self._items[which]
        return chosen

    def __setitem__(self, which: NDArray[Any], values: NDArray[Any]) -> None:
        shape = (len(which), *self._items.shape[1:])
        for number, value in zip(which.tolist(), np.broadcast_to(values, shape), strict=True):
            start = self._first + number * self._items.strides[0]
            self._memory[start : start + self._size] = value.tobytes()


class WordItems:
    """Items that are single words, read through the view that `watched` returned."""

    def __init__(self, words: memoryview, first: int, stride: int) -> None:
        self._words = words
        self._first = first
        self._stride = stride

    def __setitem__(self, which: NDArray[Any], values: NDArray[Any]) -> None:
        for number, value in zip(which.tolist(), values.tolist(), strict=True):
            self._words[self._first + number * self._stride] = value


class ItemStridedView(StridedView):
    """StridedView whose items are `Items`."""

    def of(self, size: int) -> NDArray[Any]:
        """See `StridedView.of`."""
        return cast(NDArray[Any], Items(cast(Memory, self._memory), super().of(size)))
