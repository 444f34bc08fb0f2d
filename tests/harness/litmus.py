"""Outcomes of short programs on AArch64, by the order in which their instructions may be done.

An instruction is done as soon as those before it are done that it is ordered behind: by a barrier,
an acquire, a release, a dependency, or the same word (Arm Architecture Reference Manual, section
B2.3; Pulte et al., "Simplifying ARM Concurrency", 2018). Memory is one for all. A load takes the
value of an earlier store of its own thread that is not done yet.

A program is a text for each thread, one instruction after the other:

    x=1         stores 1 in x; `x=1.rel` with release
    a=x         loads x into register a; `a=x.acq` by LDAR, `a=x.acqpc` by LDAPR
    dmb         full barrier; `dmb.ld` of earlier loads, `dmb.st` between stores
    ...&a       the address or the value depends on register a
    ...?a       a branch before it depends on register a
"""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

Outcome = frozenset[tuple[str, int]]
"""The values of registers and words at the end."""
WORDS = "xyz"


class Instruction(NamedTuple):
    """Instruction of a program.

    Attributes:
        kind: "load", "store" or a barrier's name.
        word: the word that is loaded or stored.
        register: register that a load fills.
        value: value that a store stores.
        order: "rel", "acq", "acqpc" or none.
        needs: registers that the address or the value depends on.
        decides: registers that a branch before it depends on.
    """

    kind: str
    word: str = ""
    register: str = ""
    value: int = 0
    order: str = ""
    needs: str = ""
    decides: str = ""


def parsed(text: str) -> tuple[Instruction, ...]:
    """Return the instructions of a thread."""
    return tuple(map(_instruction, text.split()))


def _instruction(text: str) -> Instruction:
    text, _, decides = text.partition("?")
    text, _, needs = text.partition("&")
    if text.startswith("dmb"):
        return Instruction(text)
    left, _, right = text.partition("=")
    right, _, order = right.partition(".")
    if left in WORDS:
        return Instruction("store", left, "", int(right), order, needs, decides)
    return Instruction("load", right, left, 0, order, needs, decides)


def _is_behind(first: Instruction, second: Instruction) -> bool:
    """Return whether an instruction waits for an earlier one of its thread."""
    kinds = first.kind, second.kind
    if "dmb" in kinds:
        return True
    if first.kind == "dmb.ld" or second.kind == "dmb.ld":
        return first.kind in ("dmb.ld", "load")
    if first.kind == "dmb.st" or second.kind == "dmb.st":
        return first.kind in ("dmb.st", "store") and second.kind in ("dmb.st", "store")
    if first.order.startswith("acq") or second.order == "rel":
        return True
    if first.order == "rel" and second.order == "acq":
        return True
    if first.word == second.word and kinds != ("store", "load"):
        return True
    if first.register and first.register in second.needs:
        return True
    return second.kind == "store" and first.register != "" and first.register in second.decides


def outcomes(*threads: str) -> set[Outcome]:
    """Return all ends that a program can have, from words that are 0."""
    programs = tuple(map(parsed, threads))
    done = tuple(frozenset[int]() for _ in programs)
    return set(_ends(programs, done, frozenset()))


def _ends(
    programs: tuple[tuple[Instruction, ...], ...],
    done: tuple[frozenset[int], ...],
    values: Outcome,
) -> frozenset[Outcome]:
    found = [
        _ends(programs, (*done[:t], done[t] | {n}, *done[t + 1 :]), after)
        for t, program in enumerate(programs)
        for n in _ready(program, done[t])
        for after in [_after(program, n, done[t], values)]
    ]
    return frozenset().union(*found) if found else frozenset({values})


_ends = cache(_ends)


def _ready(program: tuple[Instruction, ...], done: frozenset[int]) -> Iterator[int]:
    for number, instruction in enumerate(program):
        waits = (n for n in range(number) if n not in done)
        if number not in done and not any(_is_behind(program[n], instruction) for n in waits):
            yield number


def _after(
    program: tuple[Instruction, ...], number: int, done: frozenset[int], values: Outcome
) -> Outcome:
    """Return the values behind an instruction."""
    one, known = program[number], dict(values)
    if one.kind == "store":
        known[one.word] = one.value
    elif one.kind == "load":
        own = [
            earlier.value
            for n, earlier in enumerate(program[:number])
            if n not in done and earlier.kind == "store" and earlier.word == one.word
        ]
        known[one.register] = own[-1] if own else known.get(one.word, 0)
    return frozenset(known.items())
