"""Searches of SPIN in the model of a slot's life, and what they report."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from model.configurations import CONTROLS, Defines

FOLDER: Final = Path(__file__).parent
TOOLS: Final = ("spin", "gcc")
DEPTH: Final = 100_000
"""Steps of the longest path that is searched; one that is longer is reported."""
SMALL_MIB: Final = 1_500
LARGE_MIB: Final = 7_000
QUICKLY: Final = ("-O0", "-include", "hot.h")
"""Options of gcc for searches of at most some million states: all of pan takes gcc 2 s more to
optimise, and the functions that store a state take most of a search."""
THOROUGHLY: Final = ("-O2", "-DCOLLAPSE")
"""Options for larger ones, whose states must be stored in less memory each, and slower."""
_HOT: Final = """\
#define HOT __attribute__((optimize("O2")))
HOT int compress(char *, int);
HOT void d_sfh(unsigned char *, int);
HOT int h_store(char *, int);
HOT void new_state(void);
"""
_TABLE: Final = "-w22"
"""Size of pan's hash table at the start, as a power of 2: it grows, and clearing it takes time."""


@dataclass(frozen=True)
class Result:
    """Report of pan, SPIN's verifier.

    Attributes:
        states: different ones that were stored.
        depth: steps of the longest path.
        seconds: duration of the search, without making pan.
        memory_mib: memory of the search.
        errors: number of errors; the search stops at the first.
        violated: the property broken, as in slot.pml; empty where none was.
        exhaustive: whether every reachable state was looked at, assertions and end states with it.
        unreached: lines of the model that nothing led to, as file and number.
        output: all of what it said.
    """

    states: int
    depth: int
    seconds: float
    memory_mib: float
    errors: int
    violated: str
    exhaustive: bool
    unreached: frozenset[tuple[str, int]]
    output: str = field(repr=False)


def missing_tools() -> list[str]:
    """Return the tools for a search that are not installed."""
    return [tool for tool in TOOLS if shutil.which(tool) is None]


def verify(
    defines: Defines,
    *,
    comes_to_rest: bool = False,
    limit_mib: int = SMALL_MIB,
    options: Sequence[str] = QUICKLY,
) -> Result:
    """Look at every state that a configuration can come to, or at all up to the first error.

    Args:
        defines: what slot.pml looks at by #ifdef, with its value.
        comes_to_rest: as in `Configuration`.
        limit_mib: memory at which the search gives up, and is not exhaustive.
        options: of gcc.

    Raises:
        subprocess.CalledProcessError: spin or gcc refused the model.
    """
    with tempfile.TemporaryDirectory() as folder:
        return _searched(Path(folder), defines, comes_to_rest, limit_mib, options)


def verify_control(name: str) -> Result:
    """Look for the error of a control."""
    return verify({name: 1, **CONTROLS[name].defines})


def trace(name: str) -> Iterator[str]:
    """The steps, one a line, by which a control breaks a property, as their comments name them."""
    control = CONTROLS[name]
    defines = {name: 1, **control.defines}
    with tempfile.TemporaryDirectory() as folder:
        result = _searched(Path(folder), defines, False, SMALL_MIB, QUICKLY)
        if not result.errors:
            return
        replay = _run(["spin", "-t", "-p", *_flags(defines), "slot.pml"], Path(folder))
    before = ""
    for number, role, file, line in re.findall(
        r"^ *(\d+):\tproc +\d+ \(([^:]\S*?):\d+\) (\w+\.pml):(\d+)", replay, re.MULTILINE
    ):
        if number != before:
            yield f"{role:10} {comment_above((FOLDER / file).read_text(), int(line))}"
        before = number
    yield f"breaks     {result.violated}"


def comment_above(source: str, line: int) -> str:
    """The latest comment that ends at or before a line, on one line; empty where there is none."""
    before = "\n".join(source.splitlines()[:line])
    *_, comment = ["", *re.findall(r"/\*(.*?)\*/", before, re.DOTALL)]
    return " ".join(re.sub(r"\n \* ", " ", comment).split())


def _searched(
    folder: Path, defines: Defines, comes_to_rest: bool, limit_mib: int, options: Sequence[str]
) -> Result:
    for source in FOLDER.glob("*.pml"):
        shutil.copy(source, folder)
    _run(["spin", "-a", *_flags(defines), "slot.pml"], folder)
    kind = "-DNP" if comes_to_rest else "-DSAFETY"
    (folder / "hot.h").write_text(_HOT)
    defined = ["-w", "-DNOFAIR", kind, f"-DMEMLIM={limit_mib}"]
    _run(["gcc", *options, *defined, "-o", "pan", "pan.c"], folder)
    search = ["./pan", f"-m{DEPTH}", _TABLE, *(["-l"] if comes_to_rest else [])]
    # It ends with another status where it found something or gave up; `parsed` sees both.
    ran = subprocess.run(search, cwd=folder, capture_output=True, text=True, check=False)
    return parsed(ran.stdout + ran.stderr, comes_to_rest=comes_to_rest)


def _flags(defines: Defines) -> list[str]:
    return [f"-D{name}={value}" for name, value in defines.items()]


def _run(command: Sequence[str], folder: Path) -> str:
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise subprocess.CalledProcessError(
            ran.returncode, command, ran.stdout + ran.stderr, ran.stderr
        )
    return ran.stdout


def parsed(output: str, *, comes_to_rest: bool = False) -> Result:
    """Parse a report of pan.

    Raises:
        ValueError: that is no report of pan's.
    """
    found = re.search(r"depth reached (\d+), errors: (\d+)", output)
    states = re.search(r"^ *([\d.e+]+) states, stored", output, re.MULTILINE)
    if found is None or states is None:
        raise ValueError(f"pan reported no search: {output[-2000:]}")
    memory = re.search(r"^ *([\d.]+)\ttotal actual memory usage", output, re.MULTILINE)
    seconds = re.search(r"elapsed time ([\d.]+) seconds", output)
    violated = re.search(r"assertion violated .*\|\|(g_\w+)\)", output)
    searched = (
        ("non-progress cycles \t+",)
        if comes_to_rest
        else ("assertion violations\t+", "invalid end states\t+")
    )
    cut_short = (
        "Search not completed",
        "max search depth too small",
        "out of memory",
        "reached -D",
    )
    return Result(
        states=int(float(states[1])),
        depth=int(found[1]),
        seconds=float(seconds[1]) if seconds else 0.0,
        memory_mib=float(memory[1]) if memory else 0.0,
        errors=int(found[2]),
        violated=violated[1] if violated else "",
        exhaustive="Full statespace search for:" in output
        and all(line in output for line in searched)
        and not any(words in output for words in cut_short)
        and int(found[1]) < DEPTH,
        unreached=frozenset(
            (file, int(line))
            for file, line, statement in re.findall(
                r"^\t(\w+\.pml):(\d+), state \d+, (.*)$", output, re.MULTILINE
            )
            if statement != '"-end-"'
        ),
        output=output,
    )


def never_reached(results: Sequence[Result]) -> list[tuple[str, int]]:
    """Lines of the model that no configuration led to: what they say was not checked."""
    return sorted(frozenset.intersection(*(result.unreached for result in results)))
