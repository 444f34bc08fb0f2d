"""Checks the model of a slot's life with SPIN, exhaustively, one configuration after the other.

    python tests/model/check.py              what CI checks, and the negative controls
    python tests/model/check.py --large      the larger configurations too; minutes, and 7 GB
    python tests/model/check.py --trace X    the steps by which control X goes wrong

Needs spin and gcc. Exits with 1 where a property does not hold, a search was cut short, or a
control was not caught. README.md beside this file says what all of it means.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent
TOOLS: Final = ("spin", "gcc")
DEPTH: Final = 100_000
"""Steps of the longest path that is searched; one that is longer is reported."""
SMALL_MIB: Final = 1_500
LARGE_MIB: Final = 7_000

Defines = Mapping[str, int]


@dataclass(frozen=True)
class Configuration:
    """How much happens, in `defines`; what is not named there is as in slot.pml.

    Attributes:
        about: what it looks at.
        comes_to_rest: look for an endless run instead of checking the assertions.
    """

    about: str
    defines: Defines
    comes_to_rest: bool = False


@dataclass(frozen=True)
class Control:
    """A model that is wrong in one respect.

    Attributes:
        about: in which.
        defines: what else happens; small, and enough to find it.
        breaks: the names of the properties that may be found broken.
    """

    about: str
    defines: Defines
    breaks: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    """What pan said.

    Attributes:
        states: different ones that were stored.
        depth: steps of the longest path.
        seconds: that the search took, without making pan.
        memory_mib: that it took.
        errors: how many it found; it stops at the first.
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


CONFIGURATIONS: Final = {
    "batches": Configuration(
        "requests alone and in batches of two, a worker's death, a second run",
        {"SLOTS": 2, "REQUESTS": 3, "WORKER_DEATHS": 1},
    ),
    "fatal": Configuration(
        "a request that takes two workers with it, beside one that does not",
        {"SLOTS": 2, "REQUESTS": 2, "WORKER_DEATHS": 2},
    ),
    "collector": Configuration(
        "the collector's death, the next one's takeover from workers that go on; a worker's death",
        {"REQUESTS": 2, "COLLECTOR_DEATHS": 1, "WORKER_DEATHS": 1},
    ),
    "collectors": Configuration(
        "two collectors' deaths, amid the takeover too",
        {"REQUESTS": 2, "COLLECTOR_DEATHS": 2},
    ),
    "takeover": Configuration(
        "the collector's death with two slots and batches of two",
        {"SLOTS": 2, "REQUESTS": 2, "COLLECTOR_DEATHS": 1},
    ),
    "wedge": Configuration(
        "a batch that runs too long, of which one collector knows and the next does not",
        {"REQUESTS": 2, "HANGS": 1, "COLLECTOR_DEATHS": 1},
    ),
    "frontends": Configuration(
        "two frontends' deaths, amid the adoption too, and a worker's",
        {"REQUESTS": 2, "FRONTEND_DEATHS": 2, "WORKER_DEATHS": 1},
    ),
    "adoption": Configuration(
        "a frontend's death with two slots in flight, and a worker's",
        {"SLOTS": 2, "REQUESTS": 2, "FRONTEND_DEATHS": 1, "WORKER_DEATHS": 1},
    ),
    "both": Configuration(
        "a frontend's death and the collector's, each amid the other's takeover",
        {"REQUESTS": 2, "FRONTEND_DEATHS": 1, "COLLECTOR_DEATHS": 1},
    ),
    "cancelling": Configuration(
        "a frontend that gives up, a collector that refuses; two slots",
        {"SLOTS": 2, "REQUESTS": 3, "CANCELS": 1, "EXPIRIES": 1},
    ),
    "leaving": Configuration(
        "frontends that give up whatever they sent, while no worker is ready; their death",
        {"READY_WORKERS": 0, "SLOTS": 2, "REQUESTS": 3, "CANCELS": 3, "FRONTEND_DEATHS": 1},
    ),
    "left": Configuration(
        "the same, with two collectors' deaths",
        {"READY_WORKERS": 0, "SLOTS": 2, "REQUESTS": 3, "CANCELS": 3, "COLLECTOR_DEATHS": 2},
    ),
    "chain": Configuration(
        "requests for a chain of two steps, in batches of two; a worker's death",
        {"LAST_STEP": 1, "SLOTS": 2, "REQUESTS": 2, "WORKER_DEATHS": 1},
    ),
    "chains": Configuration(
        "a chain of two steps, the collector's death, a worker's, a frontend that gives up",
        {
            "LAST_STEP": 1,
            "REQUESTS": 1,
            "COLLECTOR_DEATHS": 1,
            "WORKER_DEATHS": 1,
            "CANCELS": 1,
        },
    ),
    "hang": Configuration(
        "a batch that runs too long, a frontend that gives up, a worker's death",
        {"REQUESTS": 2, "HANGS": 1, "CANCELS": 1, "WORKER_DEATHS": 1},
    ),
    "rest": Configuration(
        "no run goes on for ever, whoever is preferred",
        {"REQUESTS": 2, "WORKER_DEATHS": 1, "CANCELS": 1},
        comes_to_rest=True,
    ),
}

LARGE: Final = {
    "everybody": Configuration(
        "a death of each role, and a frontend that gives up",
        {
            "REQUESTS": 2,
            "FRONTEND_DEATHS": 1,
            "COLLECTOR_DEATHS": 1,
            "WORKER_DEATHS": 1,
            "CANCELS": 1,
        },
    ),
    "both, two slots": Configuration(
        "a frontend's death and the collector's, two slots",
        {"SLOTS": 2, "REQUESTS": 2, "FRONTEND_DEATHS": 1, "COLLECTOR_DEATHS": 1},
    ),
    "collector, two slots": Configuration(
        "the collector's death, three requests in two slots",
        {"SLOTS": 2, "REQUESTS": 3, "COLLECTOR_DEATHS": 1},
    ),
    "collector and worker, two slots": Configuration(
        "the collector's death and a worker's, two slots",
        {"SLOTS": 2, "REQUESTS": 2, "COLLECTOR_DEATHS": 1, "WORKER_DEATHS": 1},
    ),
    "collectors and worker": Configuration(
        "two collectors' deaths and a worker's",
        {"REQUESTS": 2, "COLLECTOR_DEATHS": 2, "WORKER_DEATHS": 1},
    ),
    "collectors, ring by ring": Configuration(
        "two collectors' deaths, between any two rings that a frontend empties",
        {"FINE": 1, "REQUESTS": 3, "COLLECTOR_DEATHS": 2},
    ),
    "frontend, ring by ring": Configuration(
        "a frontend's death between any two rings that it empties, and a worker's",
        {"FINE": 1, "SLOTS": 2, "REQUESTS": 2, "FRONTEND_DEATHS": 1, "WORKER_DEATHS": 1},
    ),
    "hang, two slots": Configuration(
        "a batch of two that runs too long, and whose requests are given up",
        {"SLOTS": 2, "REQUESTS": 2, "HANGS": 1, "CANCELS": 1, "WORKER_DEATHS": 1},
    ),
    "rest after takeovers": Configuration(
        "no run goes on for ever, with a frontend's and the collector's death",
        {"REQUESTS": 2, "FRONTEND_DEATHS": 1, "COLLECTOR_DEATHS": 1},
        comes_to_rest=True,
    ),
}

_ONE_WORKER: Final = {"REQUESTS": 2, "CANCELS": 1, "WORKER_DEATHS": 1}
_ONE_COLLECTOR: Final = {"REQUESTS": 2, "COLLECTOR_DEATHS": 1}
_NO_WORKER: Final = {"READY_WORKERS": 0, "SLOTS": 2, "REQUESTS": 2, "CANCELS": 2}
_TAKEOVERS: Final = {"REQUESTS": 2, "FRONTEND_DEATHS": 1, "COLLECTOR_DEATHS": 1}

CONTROLS: Final = {
    "NO_GENERATION": Control(
        "references name a slot, not one request of it",
        _TAKEOVERS,
        ("g_lost", "g_mixed_up"),
    ),
    "RECLAIM_ON_TIMEOUT": Control(
        "a frontend takes a slot back at the deadline, with no proof that nobody writes",
        _ONE_WORKER,
        ("g_handed_out_again",),
    ),
    "RETRY_ON_TIMEOUT": Control(
        "a batch runs again because it took too long, its worker not proved dead",
        {"REQUESTS": 2, "HANGS": 1},
        ("g_answered_twice",),
    ),
    "PUBLISH_FIRST": Control("CONTROL is stored before the request", _TAKEOVERS, ("g_mixed_up",)),
    "DONE_FIRST": Control(
        "DONE is stored before the result", _TAKEOVERS, ("g_mixed_up", "g_handed_out_again")
    ),
    "POST_FIRST": Control("an answer is posted before DONE", _ONE_WORKER, ("g_mixed_up",)),
    "HUSH_LAST": Control(
        "a frontend takes the doorbell's rings after looking",
        {"FINE": 1, "SLOTS": 2, "REQUESTS": 2},
        ("g_lost",),
    ),
    "NARROW_RINGS": Control(
        "completion rings have one word for each slot, not two",
        {"REQUESTS": 2, "FRONTEND_DEATHS": 2, "WORKER_DEATHS": 1},
        ("g_lost",),
    ),
    "KEEP_THE_LATEST": Control(
        "of the answers that find no room, the latest are kept; rings of one word",
        {"SLOTS": 2, "REQUESTS": 3, "WORKER_DEATHS": 2, "EXPIRIES": 1, "COMPLETIONS": 1},
        ("g_lost",),
    ),
    "SWEEP_SUBMITS_NOTHING": Control(
        "what found no room in the submission ring waits for the next request",
        _TAKEOVERS,
        ("g_lost",),
    ),
    "CANCEL_SILENTLY": Control(
        "a frontend that cancels tells nobody",
        _NO_WORKER,
        ("g_lost",),
    ),
    "LOOK_AT_THE_NEW_ALONE": Control(
        "the collector does not look again at what it knows and is submitted once more",
        _NO_WORKER,
        ("g_lost",),
    ),
    "TAKE_IN_THE_CANCELLED": Control(
        "the collector does not look whether what it takes in is cancelled already",
        _NO_WORKER,
        ("g_lost",),
    ),
    "GIVE_BACK_THE_HELD": Control(
        "the collector answers what is cancelled though a worker holds it",
        _ONE_WORKER,
        ("g_answered_twice", "g_handed_out_again"),
    ),
    "FORGET_THE_PASSED_ON": Control(
        "what a batch of a step before the last has not answered goes nowhere",
        {"LAST_STEP": 1, "REQUESTS": 1},
        ("g_lost",),
    ),
    "PASS_ON_THE_ANSWERED": Control(
        "what has failed in a step goes on to the next all the same",
        {"LAST_STEP": 1, "REQUESTS": 2, "WORKER_DEATHS": 2},
        ("g_answered_twice", "g_mixed_up", "g_handed_out_again"),
    ),
    "NUMBER_ALIKE": Control(
        "a collector takes the report of a batch that the one before it gave for one of its own",
        {"LAST_STEP": 1, "REQUESTS": 1, "COLLECTOR_DEATHS": 1, "WORKER_DEATHS": 1, "CANCELS": 1},
        ("g_answered_twice", "g_mixed_up", "g_handed_out_again"),
    ),
    "ANSWER_TOO_SOON": Control(
        "a worker answers after a step before the last",
        {"LAST_STEP": 1, "REQUESTS": 1},
        ("g_mixed_up",),
    ),
    "REPEAT_NOTHING": Control(
        "answers that a dead worker wrote and did not post are not posted",
        {"REQUESTS": 2, "WORKER_DEATHS": 1},
        ("g_lost",),
    ),
    "ADOPT_ONLY_THE_OPEN": Control(
        "a new collector posts nothing that was answered before it came",
        _TAKEOVERS,
        ("g_lost",),
    ),
    "TAKE_THE_ANSWERED": Control(
        "the collector takes in what is submitted, answered or not",
        _TAKEOVERS,
        ("g_answered_twice", "g_mixed_up"),
    ),
    "ADOPT_WHAT_IS_HELD": Control(
        "a new collector takes in what a worker still holds", _ONE_COLLECTOR, ("g_answered_twice",)
    ),
    "SLOTS_FIRST": Control(
        "a new collector looks at what workers hold after it has looked at the slots",
        _ONE_COLLECTOR,
        ("g_answered_twice",),
    ),
    "RELEASE_FIRST": Control(
        "a worker lets go of a batch before it is answered", _ONE_COLLECTOR, ("g_answered_twice",)
    ),
    "REPORT_FIRST": Control(
        "a worker reports a batch before it lets go of it", _ONE_COLLECTOR, ("g_lost",)
    ),
    "REAPING_LEAVES_TASKS": Control(
        "what a dead worker held stays in its ring for the next one",
        {"REQUESTS": 2, "WORKER_DEATHS": 1},
        ("g_answered_twice",),
    ),
    "DEATH_LEAVES_STATE": Control(
        "a dead worker still says that it is ready",
        {"REQUESTS": 2, "COLLECTOR_DEATHS": 1, "WORKER_DEATHS": 1},
        ("g_assertion_of_the_code",),
    ),
    "TELL_DEATHS_ONCE": Control(
        "a death that a collector was told of and has not dealt with is not told to the next",
        {"REQUESTS": 2, "COLLECTOR_DEATHS": 1, "WORKER_DEATHS": 1},
        ("g_lost",),
    ),
    "RESTART_UNRECLAIMED": Control(
        "a worker is replaced before the collector knows of its death",
        {"REQUESTS": 2, "WORKER_DEATHS": 1},
        ("g_lost", "g_assertion_of_the_code"),
    ),
    "ADOPT_AS_FREE": Control(
        "a lane's next owner takes all slots for free", _TAKEOVERS, ("g_handed_out_again",)
    ),
    "ADOPT_WITHOUT_CANCEL": Control(
        "a lane's next owner does not cancel what it adopts", _TAKEOVERS, ("g_answered_twice",)
    ),
    "ADOPT_UNSUBMITTED": Control(
        "a lane's next owner does not submit what it adopts", _TAKEOVERS, ("g_lost",)
    ),
    "SKIP_LAST": Control(
        "a lane's next owner empties the rings after looking at the slots",
        _TAKEOVERS,
        ("g_lost",),
    ),
}


def missing_tools() -> list[str]:
    """What is not installed of what it takes."""
    return [tool for tool in TOOLS if shutil.which(tool) is None]


def verify(
    defines: Defines,
    *,
    comes_to_rest: bool = False,
    limit_mib: int = SMALL_MIB,
    optimise: str = "-O1",
) -> Result:
    """Look at every state that a configuration can come to, or at all up to the first error.

    Args:
        defines: what slot.pml looks at by #ifdef, with its value.
        comes_to_rest: as in `Configuration`.
        limit_mib: memory at which the search gives up, and is not exhaustive.
        optimise: for gcc: what a search of a million states saves with -O2 instead of -O1 is less
            than gcc takes.

    Raises:
        subprocess.CalledProcessError: spin or gcc refused the model.
    """
    with tempfile.TemporaryDirectory() as folder:
        return _searched(Path(folder), defines, comes_to_rest, limit_mib, optimise)


def verify_control(name: str) -> Result:
    """Look for the error of a control."""
    # What it finds, it finds soon, so that gcc would take the longest.
    return verify({name: 1, **CONTROLS[name].defines}, optimise="-O0")


def trace(name: str) -> Iterator[str]:
    """The steps, one a line, by which a control breaks a property, as their comments name them."""
    control = CONTROLS[name]
    defines = {name: 1, **control.defines}
    with tempfile.TemporaryDirectory() as folder:
        result = _searched(Path(folder), defines, False, SMALL_MIB, "-O0")
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
    folder: Path, defines: Defines, comes_to_rest: bool, limit_mib: int, optimise: str
) -> Result:
    for source in FOLDER.glob("*.pml"):
        shutil.copy(source, folder)
    _run(["spin", "-a", *_flags(defines), "slot.pml"], folder)
    kind = "-DNP" if comes_to_rest else "-DSAFETY"
    options = [optimise, "-w", "-DCOLLAPSE", "-DNOFAIR", kind, f"-DMEMLIM={limit_mib}"]
    _run(["gcc", *options, "-o", "pan", "pan.c"], folder)
    search = ["./pan", f"-m{DEPTH}", *(["-l"] if comes_to_rest else [])]
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
    """What pan said, read.

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
            for file, line, what in re.findall(
                r"^\t(\w+\.pml):(\d+), state \d+, (.*)$", output, re.MULTILINE
            )
            if what != '"-end-"'
        ),
        output=output,
    )


def never_reached(results: Sequence[Result]) -> list[tuple[str, int]]:
    """Lines of the model that no configuration led to: what they say was not checked."""
    return sorted(frozenset.intersection(*(result.unreached for result in results)))


def _check(configurations: Mapping[str, Configuration], limit_mib: int, optimise: str) -> bool:
    print(f"{'configuration':24}{'states':>12}{'depth':>7}{'s':>8}{'MiB':>7}  ")
    holds = True
    for name, configuration in configurations.items():
        result = verify(
            configuration.defines,
            comes_to_rest=configuration.comes_to_rest,
            limit_mib=limit_mib,
            optimise=optimise,
        )
        verdict = "holds" if result.exhaustive else "CUT SHORT"
        if result.errors:
            verdict = f"BROKEN: {result.violated or 'see pan'}"
        holds &= verdict == "holds"
        print(
            f"{name:24}{result.states:12,}{result.depth:7}{result.seconds:8.1f}"
            f"{result.memory_mib:7.0f}  {verdict}",
            flush=True,
        )
    return holds


def _check_controls() -> bool:
    print(f"\n{'control':26}found")
    caught = True
    for name, control in CONTROLS.items():
        result = verify_control(name)
        is_caught = result.violated in control.breaks
        caught &= is_caught
        print(
            f"{name:26}{result.violated or 'nothing'}{'' if is_caught else ': NOT CAUGHT'}",
            flush=True,
        )
    return caught


def main() -> int:
    """Check and print; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--large", action="store_true", help="the larger configurations too")
    parser.add_argument("--trace", choices=CONTROLS, help="how a control goes wrong, step by step")
    arguments = parser.parse_args()
    if missing := missing_tools():
        print(f"not installed: {', '.join(missing)}", file=sys.stderr)
        return 2
    if arguments.trace:
        print(*trace(arguments.trace), sep="\n")
        return 0
    holds = _check(CONFIGURATIONS, SMALL_MIB, "-O1")
    if arguments.large:
        holds &= _check(LARGE, LARGE_MIB, "-O2")
    return 0 if _check_controls() and holds else 1


if __name__ == "__main__":
    sys.exit(main())
