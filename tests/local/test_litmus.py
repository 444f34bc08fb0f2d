"""The models of a weak memory: against published outcomes, and one against the other.

The classical tests, allowed and forbidden on AArch64, after Maranget, Sarkar and Sewell, "A
Tutorial Introduction to the ARM and POWER Relaxed Memory Models", 2012, and Pulte et al.,
"Simplifying ARM Concurrency", 2018.
"""

from collections.abc import Callable
from functools import partial

import pytest
from interleave import Actor, Scenario, Watch, explore, fence
from litmus import Instruction, Outcome, outcomes, parsed
from memories import Armv8, TotalStoreOrder

from ringbatch.shm import memory_order

ALLOWED, FORBIDDEN = True, False
MP, SB, LB, S, R, WW = "a=1 b=0", "a=0 b=0", "a=1 b=1", "a=1 x=2", "a=0 y=2", "x=2 y=2"
IRIW, WRC = "a=1 b=0 c=1 d=0", "a=1 b=1 c=0"
LITMUS = {
    "MP": (["x=1 y=1", "a=y b=x"], MP, ALLOWED),
    "MP+dmb+po": (["x=1 dmb y=1", "a=y b=x"], MP, ALLOWED),
    "MP+po+dmb": (["x=1 y=1", "a=y dmb b=x"], MP, ALLOWED),
    "MP+dmbs": (["x=1 dmb y=1", "a=y dmb b=x"], MP, FORBIDDEN),
    "MP+dmb.st+dmb.ld": (["x=1 dmb.st y=1", "a=y dmb.ld b=x"], MP, FORBIDDEN),
    "MP+dmb.ld+dmb.ld": (["x=1 dmb.ld y=1", "a=y dmb.ld b=x"], MP, ALLOWED),
    "MP+dmb+addr": (["x=1 dmb y=1", "a=y b=x&a"], MP, FORBIDDEN),
    "MP+dmb+ctrl": (["x=1 dmb y=1", "a=y b=x?a"], MP, ALLOWED),
    "MP+rel+acq": (["x=1 y=1.rel", "a=y.acq b=x"], MP, FORBIDDEN),
    "MP+rel+acqpc": (["x=1 y=1.rel", "a=y.acqpc b=x"], MP, FORBIDDEN),
    "MP+rel+po": (["x=1 y=1.rel", "a=y b=x"], MP, ALLOWED),
    "MP+po+acq": (["x=1 y=1", "a=y.acq b=x"], MP, ALLOWED),
    "MP+rel first": (["x=1.rel y=1", "a=y.acq b=x"], MP, ALLOWED),
    "MP+acq second": (["x=1 y=1.rel", "a=y b=x.acq"], MP, ALLOWED),
    "SB": (["x=1 a=y", "y=1 b=x"], SB, ALLOWED),
    "SB+dmbs": (["x=1 dmb a=y", "y=1 dmb b=x"], SB, FORBIDDEN),
    "SB+dmb+po": (["x=1 dmb a=y", "y=1 b=x"], SB, ALLOWED),
    "SB+dmb.sts": (["x=1 dmb.st a=y", "y=1 dmb.st b=x"], SB, ALLOWED),
    "SB+dmb.lds": (["x=1 dmb.ld a=y", "y=1 dmb.ld b=x"], SB, ALLOWED),
    "SB+rel+acq": (["x=1.rel a=y.acq", "y=1.rel b=x.acq"], SB, FORBIDDEN),
    "SB+rel+acqpc": (["x=1.rel a=y.acqpc", "y=1.rel b=x.acqpc"], SB, ALLOWED),
    "LB": (["a=x y=1", "b=y x=1"], LB, ALLOWED),
    "LB+datas": (["a=x y=1&a", "b=y x=1&b"], LB, FORBIDDEN),
    "LB+ctrls": (["a=x y=1?a", "b=y x=1?b"], LB, FORBIDDEN),
    "LB+data+po": (["a=x y=1&a", "b=y x=1"], LB, ALLOWED),
    "LB+dmbs": (["a=x dmb y=1", "b=y dmb x=1"], LB, FORBIDDEN),
    "LB+rels": (["a=x y=1.rel", "b=y x=1.rel"], LB, FORBIDDEN),
    "LB+acqs": (["a=x.acq y=1", "b=y.acq x=1"], LB, FORBIDDEN),
    "LB+acq+po": (["a=x.acq y=1", "b=y x=1"], LB, ALLOWED),
    "S": (["x=2 y=1", "a=y x=1"], S, ALLOWED),
    "S+dmb+po": (["x=2 dmb y=1", "a=y x=1"], S, ALLOWED),
    "S+dmb+ctrl": (["x=2 dmb y=1", "a=y x=1?a"], S, FORBIDDEN),
    "S+dmb+data": (["x=2 dmb y=1", "a=y x=1&a"], S, FORBIDDEN),
    "S+rel+acq": (["x=2 y=1.rel", "a=y.acq x=1"], S, FORBIDDEN),
    "S+po+ctrl": (["x=2 y=1", "a=y x=1?a"], S, ALLOWED),
    "R": (["x=1 y=1", "y=2 a=x"], R, ALLOWED),
    "R+dmbs": (["x=1 dmb y=1", "y=2 dmb a=x"], R, FORBIDDEN),
    "R+dmb+po": (["x=1 dmb y=1", "y=2 a=x"], R, ALLOWED),
    "R+po+dmb": (["x=1 y=1", "y=2 dmb a=x"], R, ALLOWED),
    "R+dmb.st+dmb": (["x=1 dmb.st y=1", "y=2 dmb a=x"], R, FORBIDDEN),
    "R+rel+po": (["x=1 y=1.rel", "y=2 a=x"], R, ALLOWED),
    "2+2W": (["x=2 y=1", "y=2 x=1"], WW, ALLOWED),
    "2+2W+dmbs": (["x=2 dmb y=1", "y=2 dmb x=1"], WW, FORBIDDEN),
    "2+2W+dmb.sts": (["x=2 dmb.st y=1", "y=2 dmb.st x=1"], WW, FORBIDDEN),
    "2+2W+dmb+po": (["x=2 dmb y=1", "y=2 x=1"], WW, ALLOWED),
    "2+2W+rels": (["x=2 y=1.rel", "y=2 x=1.rel"], WW, FORBIDDEN),
    "2+2W+rels first": (["x=2.rel y=1", "y=2.rel x=1"], WW, ALLOWED),
    "IRIW": (["x=1", "a=x b=y", "y=1", "c=y d=x"], IRIW, ALLOWED),
    "IRIW+addrs": (["x=1", "a=x b=y&a", "y=1", "c=y d=x&c"], IRIW, FORBIDDEN),
    "IRIW+dmbs": (["x=1", "a=x dmb b=y", "y=1", "c=y dmb d=x"], IRIW, FORBIDDEN),
    "IRIW+dmb+po": (["x=1", "a=x dmb b=y", "y=1", "c=y d=x"], IRIW, ALLOWED),
    "IRIW+acqs": (["x=1", "a=x.acq b=y", "y=1", "c=y.acq d=x"], IRIW, FORBIDDEN),
    "WRC": (["x=1", "a=x y=1", "b=y c=x"], WRC, ALLOWED),
    "WRC+addrs": (["x=1", "a=x y=1&a", "b=y c=x&b"], WRC, FORBIDDEN),
    "WRC+dmb+addr": (["x=1", "a=x dmb y=1", "b=y c=x&b"], WRC, FORBIDDEN),
    "WRC+data+po": (["x=1", "a=x y=1&a", "b=y c=x"], WRC, ALLOWED),
    "WRC+po+addr": (["x=1", "a=x y=1", "b=y c=x&b"], WRC, ALLOWED),
    "WRC+rel+acq": (["x=1", "a=x y=1.rel", "b=y.acq c=x"], WRC, FORBIDDEN),
    "PPOCA": (["x=1 dmb y=1", "a=y z=1?a c=z b=x&c"], "a=1 b=0 c=1", ALLOWED),
    "CoRR": (["x=1", "a=x b=x"], MP, FORBIDDEN),
    "CoWW": (["x=1 x=2"], "x=1", FORBIDDEN),
    "CoWR": (["x=1 a=x", "x=2"], "a=0", FORBIDDEN),
    "CoRW": (["a=x x=1", "x=2"], "a=1", FORBIDDEN),
}
"""Threads of each litmus test, the end in question, and whether a processor may reach it."""


def end(text: str) -> set[tuple[str, int]]:
    return {(name, int(value)) for name, _, value in (part.partition("=") for part in text.split())}


@pytest.mark.parametrize("name", LITMUS)
def test_an_end_is_reached_where_it_is_allowed_and_nowhere_else(name: str) -> None:
    threads, asked, is_allowed = LITMUS[name]
    assert any(end(asked) <= found for found in outcomes(*threads)) == is_allowed


# The explorer runs Python, in which every store depends on every load before it, and it knows no
# dependencies between loads. Its acquires are those of LDAPR.


def as_python(text: str) -> str:
    """Return a thread with the branches that Python has, and none of another kind."""
    loaded, lines = "", []
    for word in text.split():
        plain = word.partition("&")[0].partition("?")[0].replace(".acqpc", ".acq")
        plain = plain.replace(".acq", ".acqpc")
        one = parsed(plain)[0]
        lines.append(f"{plain}?{loaded}" if one.kind == "store" and loaded else plain)
        loaded += one.register
    return " ".join(lines)


def explored(threads: list[str], memory: type = Armv8) -> set[Outcome]:
    """Return the ends of a program that the explorer finds."""
    found: set[Outcome] = set()

    def scenario(watch: Watch) -> tuple[list[Actor], Callable[[], None]]:
        memory = bytearray(24)
        words, known = watch(memoryview(memory).cast("Q")), dict[str, int]()
        stored = {one.word for text in threads for one in parsed(text) if one.kind == "store"}

        def check() -> None:
            values = {word: words["xyz".index(word)] for word in stored}
            found.add(frozenset((known | values).items()))

        actors = [Actor(text, partial(run, parsed(text), words, known)) for text in threads]
        return actors, check

    made: Scenario = scenario
    explore(made, memory=memory)
    return found


def run(program: tuple[Instruction, ...], words: memoryview, known: dict[str, int]) -> None:
    for one in program:
        number = "xyz".find(one.word)
        if one.kind == "store" and one.order:
            memory_order.store_release(words, number, one.value)
        elif one.kind == "store":
            words[number] = one.value
        elif one.kind == "load" and one.order:
            known[one.register] = memory_order.load_acquire(words, number)
        elif one.kind == "load":
            known[one.register] = words[number]
        elif one.kind == "dmb":
            fence()
        elif one.kind == "dmb.ld":
            memory_order.acquire_fence()
        else:
            memory_order.release_fence()


@pytest.mark.parametrize("name", LITMUS)
def test_the_explorer_reaches_the_same_ends(name: str) -> None:
    threads = [as_python(text) for text in LITMUS[name][0]]
    assert explored(threads) == outcomes(*threads)


def test_the_explorers_x86_reaches_the_states_of_x86() -> None:
    """Without a barrier only SB and R; see Sewell et al., "x86-TSO", 2010."""
    plain = {n: t for n, t in LITMUS.items() if "+" not in n and n != "PPOCA"} | {
        "2+2W": LITMUS["2+2W"]
    }
    reached = {
        name
        for name, (threads, asked, _) in plain.items()
        if any(end(asked) <= found for found in explored(threads, TotalStoreOrder))
    }
    assert reached == {"SB", "R"}
