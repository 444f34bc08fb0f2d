"""Instruction counts, by valgrind's tool callgrind.

Times differ from run to run and from machine to machine. The number of instructions that a program
runs in user space hardly does, because valgrind shows every program the same processor. It does not
tell how long an instruction takes, and leaves out the kernel.

The counted program marks the code to count, with functions of a small library that is compiled here
against valgrind's own header. Nothing counts outside of the marks. Until the first mark the program
runs at a tenth of its usual speed instead of a hundredth.
"""

import ctypes
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

_MARKS = Path(__file__).with_name("callgrind_marks.c")
_VALGRIND = (
    "valgrind",
    "--quiet",
    "--tool=callgrind",
    "--instr-atstart=no",
    "--collect-atstart=no",
)
_NAME = re.compile(r"^desc: Trigger: Client Request: (.*)$", re.M)
_TOTAL = re.compile(r"^totals: (\d+)$", re.M)


class CannotCount(RuntimeError):
    """Valgrind or a C compiler is missing, or the counted program failed; the text says which."""


class Marks:
    """Says what is counted, in a program that runs under callgrind.

    Args:
        library: as `counts` gives it to the program.
    """

    def __init__(self, library: str) -> None:
        # It keeps the interpreter's lock, which takes fewer instructions than to give it back.
        marks = ctypes.PyDLL(library)
        self._toggle: Callable[[], object] = marks.toggle
        self._dump: Callable[[bytes], object] = marks.dump
        marks.watch()

    def count(
        self,
        name: str,
        run: Callable[[], object],
        before: Callable[[], object],
        after: Callable[[], object],
        times: int,
    ) -> None:
        """Count a call so many times, with what comes around it and is not counted.

        The calls that start and stop the counting take part; they are the same for every `run`.
        """
        toggle = self._toggle
        for _ in range(times):
            before()
            toggle()
            run()
            toggle()
            after()
        self._dump(name.encode())


def valgrind_version() -> str:
    """Return the version of valgrind.

    Raises:
        CannotCount: valgrind is not installed.
    """
    if shutil.which("valgrind") is None:
        raise CannotCount("valgrind is not installed: apt-get install valgrind gcc libc6-dev")
    completed = subprocess.run(
        ["valgrind", "--version"], capture_output=True, text=True, check=True
    )
    return completed.stdout.strip()


def counts(command: Sequence[str]) -> dict[str, int]:
    """Run a program under callgrind; the instructions of everything that it counted, by name.

    Args:
        command: of the program, which gets the path of the library for `Marks` as its last
            argument.

    Raises:
        CannotCount: see there.
    """
    valgrind_version()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        library = _compiled(Path(folder))
        done = subprocess.run(
            [*_VALGRIND, f"--callgrind-out-file={folder}/counted", *command, str(library)],
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise CannotCount(f"{command[0]} failed under valgrind:\n{done.stdout}{done.stderr}")
        files = sorted(Path(folder).glob("counted.*"), key=lambda path: int(path.suffix[1:]))
        return read(path.read_text() for path in files)


def read(files: Iterable[str]) -> dict[str, int]:
    """Return the counts in callgrind's files, by the names given to `Marks`."""
    found = {}
    for text in files:
        name, total = _NAME.search(text), _TOTAL.search(text)
        if name is not None and total is not None:
            found[name[1]] = int(total[1])
    return found


def _compiled(folder: Path) -> Path:
    library = folder / "marks.so"
    command = ["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(_MARKS)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise CannotCount("gcc is not installed: apt-get install gcc libc6-dev") from None
    except subprocess.CalledProcessError as error:
        raise CannotCount(f"{_MARKS.name} cannot be compiled:\n{error.stderr}") from None
    return library


def _environment() -> dict[str, str]:
    """Return a small environment, with hashes that do not differ from run to run."""
    kept = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return {**kept, **threads, "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}
