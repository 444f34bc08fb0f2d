"""The model table: written by the supervisor while the engine runs, read by everybody.

Two copies lie in the segment, and a word has the number of the valid one. The supervisor writes the
next table into the other copy, then stores the word. So a reader sees the old table or the new one
and nothing between, and one load shows whether a known table is still valid.

    publish   the entries into copy (n + 1) modulo 2, then n + 1 into MODEL_TABLE
    read      n from MODEL_TABLE, copy n modulo 2, and the word again: if that is n still, the
              copy is whole, since it is not written before the number is past n

Most changes are of one entry: the lines of the others are neither written nor read anew.
"""

from ringbatch.shm import model_spec
from ringbatch.shm.descriptors import HeaderWords, ModelWords
from ringbatch.shm.errors import LayoutMismatch
from ringbatch.shm.layout import WORD, Layout
from ringbatch.shm.memory_order import acquiring, is_unchanged, release_fence, store_release
from ringbatch.shm.model_spec import ModelSpec


class ModelTable:
    """The model table of one segment.

    Args:
        words: the segment as a memoryview of format ``Q``.
        memory: the segment as bytes.
        layout: of the segment.
    """

    def __init__(self, words: memoryview, memory: memoryview, layout: Layout) -> None:
        self._words = words
        self._load_acquire = acquiring(words)
        self._memory = memory
        self._layout = layout
        self._written: dict[int, tuple[ModelSpec, bytes]] = {}
        self._known: dict[bytes, ModelSpec] = {}

    @property
    def number(self) -> int:
        """Number of the table that holds now, read in one load; the first is 1."""
        # A client looks at it with each request.
        number: int = self._load_acquire[HeaderWords.MODEL_TABLE]
        return number

    def publish(self, models: tuple[ModelSpec, ...]) -> int:
        """Have another table hold from now on; by the supervisor alone.

        Returns:
            The table's number.

        Raises:
            ValueError: there is no room for so many entries; nothing has changed then.
        """
        written = {spec.reference: self._with_line(spec) for spec in models}
        text = model_spec.joined(line for _, line in written.values())
        room = self._layout.model_table_bytes
        if len(text) > room:
            raise ValueError(f"the model table has {len(text)} bytes, not {room}")
        self._written = written
        number = self.number + 1
        # A reader of this copy's last table must see that it holds no more before it is written.
        release_fence()
        self._memory[self._layout.model_table_copy(number)] = text.ljust(room)
        store_release(self._words, HeaderWords.MODEL_TABLE, number)
        return number

    def read(self) -> tuple[int, tuple[ModelSpec, ...]]:
        """Return the number and the entries of the valid table.

        Raises:
            LayoutMismatch: another version of ringbatch wrote it.
        """
        while True:
            number = self.number
            text = bytes(self._memory[self._layout.model_table_copy(number)])
            if is_unchanged(self._words, HeaderWords.MODEL_TABLE, number):
                break
        try:
            lines = model_spec.lines_of(text)
            entries = tuple(map(self._entry, lines))
        except (KeyError, TypeError, ValueError) as error:
            raise LayoutMismatch(
                f"the engine's model table is none of this version of ringbatch ({error}); "
                "run the same version everywhere"
            ) from None
        self._known = dict(zip(lines, entries, strict=True))
        return number, entries

    def _with_line(self, spec: ModelSpec) -> tuple[ModelSpec, bytes]:
        """Return an entry with its line, which is written anew only if the entry has changed."""
        before = self._written.get(spec.reference)
        return before if before and before[0] is spec else (spec, model_spec.line_of(spec))

    def _entry(self, line: bytes) -> ModelSpec:
        """Return the entry of a line, which is read anew only if the line has changed."""
        return self._known.get(line) or model_spec.entry_of(line)

    def clear_place(self, index: int) -> None:
        """Wipe the words of a place without an entry, before its next use. Supervisor only."""
        first, size = self._layout.model(index), ModelWords.SIZE
        self._memory[first * WORD : (first + size) * WORD] = bytes(size * WORD)
