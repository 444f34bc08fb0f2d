"""Stores of a real run, each held against the steps of the model.

The model's text says which role stores which of the variables that processes share, and the comment
above each step names the code that does so. Of both a table is made, `rights`. `Replay` is shown
every word that the processes of a simulated run store: the role must have the right to, the code
that the step is for must be what runs, and what the model asserts of such a step must be true.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from ringbatch.engine.ipc.messages import read_tasks
from ringbatch.shm.descriptors import REPORT_WORDS, TASK_WORDS, RingWords, SlotWords
from ringbatch.shm.layout import Layout
from ringbatch.shm.slot import (
    DROPPED,
    FLAG_BITS,
    FLAG_MASK,
    PART,
    SLOT_BITS,
    SLOT_MASK,
    WANTED,
    State,
    state_of,
)

Code = tuple[str, str]
"""A file and the name of a function or method in it, without its class."""
Rights = Mapping[tuple[str, str], set[Code]]
"""Code that stores a variable, by role and variable.

Rings are two each: ``tasks!`` is stored by who puts something in, ``tasks?`` by who takes it out.
"""

_NAMED: Final = re.compile(r"((?:shm|engine|frontend)/[\w/]+\.py): (.*?)(?=;|\. |\.?$)")
_NAME: Final = re.compile(r"\b([A-Z][a-z]\w*(?:\.\w+)?)\b|\b(\w+)\(\)")
_COMMENT: Final = re.compile(r"/\*(.*?)\*/", re.DOTALL)
_INLINE: Final = re.compile(r"^inline (\w+)\([^)]*\) \{", re.MULTILINE)
_MACRO: Final = re.compile(r"^#define (\w+)\([^)]*\)((?:.*\\\n)*.*)", re.MULTILINE)
_ROLE: Final = re.compile(r"^proctype (\w+)\([^)]*\) \{", re.MULTILINE)
_STEP: Final = re.compile(r"^    :: (?:atomic|d_step) \{", re.MULTILINE)
_STORE: Final = re.compile(r"\b(control|dropped|done)\[[^]]*\] = ")
_RING: Final = re.compile(r"\b(submissions|completions|tasks|reports)(?:\[[^]\n]*\])?([!?])(?!<)")


class Forbidden(AssertionError):
    """Step that the model does not have."""


def references(comment: str) -> Iterator[tuple[str, str]]:
    """Yield what a comment names, as file and function, class or method."""
    for file, names in _NAMED.findall(comment):
        for dotted, called in _NAME.findall(names):
            yield file, dotted or called


def rights(sources: Iterable[str]) -> dict[tuple[str, str], set[Code]]:
    """Return the `Rights` that the model's files give, with no control that makes them wrong."""
    text = "\n".join(map(_without_controls, sources))
    inlines = {
        found[1]: (_block(text, found), _code_above(text, found))
        for found in _INLINE.finditer(text)
    }
    inlines |= {found[1]: (found[2], set()) for found in _MACRO.finditer(text)}
    table: dict[tuple[str, str], set[Code]] = {}
    for role in _ROLE.finditer(text):
        body = _block(text, role)
        for step in _STEP.finditer(body):
            for variable, code in _stores(_block(body, step), inlines):
                table.setdefault((role[1], variable), set()).update(code, _code_above(body, step))
    return table


def _stores(
    body: str, inlines: Mapping[str, tuple[str, set[Code]]]
) -> Iterator[tuple[str, set[Code]]]:
    """The variables that a piece of the model stores, and the code that is named within it."""
    for variable in _STORE.findall(body):
        yield variable, set()
    for ring, way in _RING.findall(body):
        yield ring + way, set()
    for name, (inner, code) in inlines.items():
        if re.search(rf"\b{name}\(", body):
            for variable, named in _stores(inner, inlines):
                yield variable, code | named


def _without_controls(source: str) -> str:
    """The text with none of what #ifdef looks at defined."""
    kept, active = [], [True]
    for line in source.splitlines():
        if line.startswith(("#ifdef", "#ifndef")):
            active.append(line.startswith("#ifndef"))
        elif line.startswith("#else"):
            active[-1] = not active[-1]
        elif line.startswith("#endif"):
            active.pop()
        elif all(active):
            kept.append(line)
    return "\n".join(kept)


def _block(text: str, opening: "re.Match[str]") -> str:
    """Return the text from an opening brace, the match's last character, to the closing one."""
    depth = 1
    for end in range(opening.end(), len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if not depth:
            return text[opening.end() : end]
    raise ValueError(f"{opening[0]!r} has no end")


def _code_above(text: str, found: "re.Match[str]") -> set[Code]:
    """Return the code named in the last comment above a match."""
    *_, comment = ["", *_COMMENT.findall(text[: found.start()])]
    plain = " ".join(re.sub(r"\n\s*\*", " ", comment).split())
    return {(file, name.rpartition(".")[2]) for file, name in references(plain)}


class Replay:
    """Replay of a run's stores, with the state that the model's assertions need.

    Args:
        layout: of the segment.
        words: the segment's; a store is shown before it is made.
        table: see `rights`.
        lanes: number of the lanes, from the first, that are used as they must be.
    """

    def __init__(self, layout: Layout, words: memoryview, table: Rights, lanes: int) -> None:
        self._words = words
        self._rights = table
        self._first_slot = layout.slots_word
        self._slots = lanes * layout.slots
        self._given: dict[int, set[int]] = {}
        """References that stood in each worker's ring."""
        self._rings: dict[int, tuple[str, int, int, int]] = {}
        """Ring of each TAIL or HEAD word: its kind, owner, first item and capacity."""
        for lane in range(lanes):
            self._add("submissions", lane, layout.submission_ring(lane), layout.slots)
            for producer in range(layout.workers + 1):
                ring = layout.completion_ring(lane, producer)
                self._add("completions", lane, ring, layout.completion_words)
        for worker in range(layout.workers):
            self._add("tasks", worker, layout.task_ring(worker), TASK_WORDS)
            self._add("reports", worker, layout.report_ring(worker), REPORT_WORDS)
        self.seen: set[tuple[str, str]] = set()
        """Roles and variables seen so far."""

    def _add(self, name: str, owner: int, ring: int, capacity: int) -> None:
        first = ring + RingWords.ITEMS
        self._rings[ring + RingWords.TAIL] = name + "!", owner, first, capacity
        self._rings[ring + RingWords.HEAD] = name + "?", owner, first, capacity

    def store(
        self, role: str, own: int, number: int, value: int, running: Callable[[], set[Code]]
    ) -> None:
        """Check a store that a process is about to make.

        Args:
            role: its kind.
            own: its number among processes of that kind.
            number: of the word.
            value: to be stored.
            running: tells the functions that it is in.

        Raises:
            Forbidden: the model has no such step.
        """
        slot, field = divmod(number - self._first_slot, SlotWords.SIZE)
        if 0 <= slot < self._slots and field in (0, SlotWords.DONE):
            variable = self._done(role, own, slot, value) if field else self._control(slot, value)
        elif number in self._rings:
            variable, owner, first, capacity = self._rings[number]
            if variable.endswith("!"):
                before = self._words[number]
                mask = capacity - 1
                items = [self._words[first + (place & mask)] for place in range(before, value)]
                self._put(variable, owner, items)
        else:
            return
        self.seen.add((role, variable))
        if (role, variable) not in self._rights:
            raise Forbidden(f"a {role} does not store {variable}")
        allowed, code = self._rights[role, variable], running()
        if variable.endswith("?"):
            # The model names the code that acts on taken items, which runs after HEAD is stored.
            apt = not {file for file, _ in allowed}.isdisjoint(file for file, _ in code)
        else:
            apt = not allowed.isdisjoint(code)
        if not apt:
            raise Forbidden(f"a {role} stores {variable} in {sorted(code)}")

    def _words_of(self, slot: int) -> tuple[int, int]:
        first = self._first_slot + slot * SlotWords.SIZE
        return self._words[first], self._words[first + SlotWords.DONE]

    def _is_open(self, ref: int) -> bool:
        control, done = self._words_of(ref & SLOT_MASK)
        return control >> FLAG_BITS == ref >> SLOT_BITS != done >> FLAG_BITS

    def _control(self, slot: int, value: int) -> str:
        control, done = self._words_of(slot)
        grown = (value >> FLAG_BITS) - (control >> FLAG_BITS)
        flag = value & FLAG_MASK
        if flag == WANTED and grown == 1 and state_of(control, done) is State.FREE:
            return "control"
        if flag == DROPPED and grown == 0:
            return "dropped"
        raise Forbidden(f"CONTROL {value:#x} follows {control:#x}, with DONE {done:#x}")

    def _done(self, role: str, own: int, slot: int, value: int) -> str:
        ref = value >> FLAG_BITS << SLOT_BITS | slot
        if not self._is_open(ref):
            raise Forbidden(f"DONE {value:#x} is stored where {self._words_of(slot)} stand")
        if role == "worker" and ref not in self._given.get(own, ()):
            raise Forbidden(f"worker {own} answers {ref:#x}, which it was not given")
        return "done"

    def _put(self, variable: str, owner: int, items: list[int]) -> None:
        if variable == "tasks!":
            given = [ref for _, references, _ in read_tasks(items) for ref in references]
            self._given.setdefault(owner, set()).update(given)
            wrong = [r for r in given if r & SLOT_MASK < self._slots and not self._is_open(r)]
        elif variable == "completions!":
            # A notice that a part is out comes before the answer.
            found = [(word & ~PART, word < PART) for word in items]
            wrong = [r for r, done in found if self._generation(r, done=done) < r >> SLOT_BITS]
        elif variable == "submissions!":
            asked = [word & ~PART for word in items]
            wrong = [r for r in asked if self._generation(r, done=False) < r >> SLOT_BITS]
        else:
            return
        if wrong:
            raise Forbidden(f"{variable} {wrong[0]:#x}, and its slot is not so far")

    def _generation(self, ref: int, *, done: bool) -> int:
        return self._words_of(ref & SLOT_MASK)[done] >> FLAG_BITS
