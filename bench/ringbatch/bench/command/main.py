"""Top level of `ringbatch bench`: measures, writes the results, and reports progress."""

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from ringbatch.bench.command.measurement import measure
from ringbatch.bench.command.settings import Protocol, Settings
from ringbatch.bench.command.subject import Subject, find
from ringbatch.bench.load.child import GeneratorDied
from ringbatch.bench.report.comparison import Compared, NotComparable, compared, shown, unlike
from ringbatch.bench.report.document import markdown
from ringbatch.bench.report.page import page
from ringbatch.bench.report.result import Result
from ringbatch.bench.served.asking import Address, reached
from ringbatch.bench.served.engine import Served, started
from ringbatch.bench.served.failures import CannotMeasure
from ringbatch.bench.served.machine import BUSY_SHARE, described, others

WORSE: Final = 1
STOPPED: Final = 130
"""A shell's exit status for a command that Ctrl-C has ended."""
_SEED: Final = 7
"""Seed of the bootstrap: the same two files always compare in the same way."""


def run(settings: Settings) -> int:
    """Measure, and write what was found; progress on standard error, the table on standard output.

    Called in the main thread, as it handles SIGTERM like Ctrl-C.

    Returns:
        The exit status: 0; `STOPPED` if a signal ended the measurement, with the results so far
        written.

    Raises:
        CannotMeasure: there is no figure; nothing was written.
    """
    earlier_handler = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _expect_writable(settings.output)
        expect_readable(settings)
        _expect_servers(settings)
        warnings = quiet(settings)
        result = _measured(settings, warnings)
        written = _written(settings.output, result)
    finally:
        signal.signal(signal.SIGTERM, earlier_handler)
    print(markdown(result))
    print("\n".join(f"wrote {path}" for path in written))
    return STOPPED if result.stopped else 0


def _measured(settings: Settings, warnings: Sequence[str]) -> Result:
    try:
        return measure(lambda: _subject(settings), settings, described(), warnings, print_progress)
    except GeneratorDied as error:
        raise CannotMeasure(str(error)) from None


def _written(output: Path, result: Result) -> list[Path]:
    """Write what was found; the paths."""
    stamp = result.started_utc.partition("+")[0].replace(":", "").replace("-", "")
    stem = f"{result.model}-{stamp}"
    files = {
        output / f"{stem}.json": result.as_json(),
        output / f"{stem}.md": markdown(result).encode(),
        output / f"{stem}.html": page(result).encode(),
    }
    for path, content in files.items():
        _write(path, content)
    return [*files]


def compare(paths: Sequence[Path], threshold: float, *, even_if_unlike: bool) -> int:
    """Hold two results against each other, the earlier one first, and print how they differ.

    Returns:
        The exit status: 1 where a figure is proven to be worse by more than the threshold, else 0.

    Raises:
        CannotMeasure: they cannot be compared.
    """
    figures = differences(paths, threshold, even_if_unlike=even_if_unlike)
    print(shown(figures, threshold))
    return WORSE if any(figure.worse for figure in figures) else 0


def differences(paths: Sequence[Path], threshold: float, *, even_if_unlike: bool) -> list[Compared]:
    """Return the differences of two results, the earlier one first, figure by figure.

    Raises:
        CannotMeasure: they cannot be compared.
    """
    earlier, later = (_read(path) for path in paths)
    if found := unlike(earlier, later):
        for line in found:
            print_progress(line)
        if not even_if_unlike:
            raise CannotMeasure("they are not of the same thing; --even-if-unlike compares them")
    try:
        return compared(earlier, later, threshold, np.random.default_rng(_SEED))
    except NotComparable as error:
        raise CannotMeasure(str(error)) from None


def print_progress(line: str) -> None:
    """Tell how far it is."""
    print(f"ringbatch: {line}", file=sys.stderr, flush=True)


@contextmanager
def _subject(settings: Settings) -> Iterator[Subject]:
    with _served(settings) as served:
        yield find(served, settings)


@contextmanager
def _served(settings: Settings) -> Iterator[Served]:
    if settings.url is None:
        assert settings.config is not None
        with started(settings.config, flags_for(settings)) as served:
            yield served
    else:
        control, grpc = (
            None if url is None else Address.of(url)
            for url in (settings.control_url, settings.grpc_url)
        )
        yield Served(Address.of(settings.url), control, grpc, settings.engine)


def flags_for(settings: Settings) -> list[str]:
    """Return the flags of a started engine that let it be asked in the protocol."""
    return ["--grpc-port", "0"] if settings.protocol is Protocol.GRPC else []


def quiet(settings: Settings) -> list[str]:
    """Return warnings for the result if the host does other things.

    Raises:
        CannotMeasure: it does, and that was not allowed.
    """
    share, names = others()
    if share <= BUSY_SHARE:
        return []
    takers = ", ".join(names) or "many processes"
    notice = f"{share:.0%} of this host's CPU time is taken by others: {takers}"
    if not settings.even_if_busy:
        raise CannotMeasure(
            f"{notice}; figures would be theirs too: --even-if-busy measures anyway"
        )
    print_progress(f"{notice}; figures are theirs too")
    return [f"Before the measurement, {notice}. Figures are theirs too."]


def _expect_writable(folder: Path) -> None:
    """Find out before anything is measured that nothing could be written."""
    probe = folder / ".ringbatch-bench"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise CannotMeasure(f"--output {folder}: {error.strerror}") from None


def expect_readable(settings: Settings) -> None:
    """Find out what is wrong with the paths of files before what is wrong with the host.

    Raises:
        CannotMeasure: the configuration or the request cannot be read.
    """
    for flag, path in (("--config", settings.config), ("--request", settings.request)):
        if path is None:
            continue
        try:
            with path.open("rb"):
                pass
        except OSError as error:
            raise CannotMeasure(f"{flag} {path}: {error.strerror}") from None


def _expect_servers(settings: Settings) -> None:
    """Find out what is wrong with addresses before what is wrong with the host."""
    for flag, url in (
        ("--url", settings.url),
        ("--control-url", settings.control_url),
        ("--grpc-url", settings.grpc_url),
    ):
        if url is not None:
            reached(_address(flag, url))


def _address(flag: str, url: str) -> Address:
    """Return the address that a flag has; an error names the flag."""
    try:
        return Address.of(url)
    except CannotMeasure as error:
        raise CannotMeasure(f"{flag}: {error}") from None


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise CannotMeasure(f"{path}: {error.strerror}") from None


def _read(path: Path) -> Result:
    try:
        return Result.from_json(path.read_bytes())
    except OSError as error:
        raise CannotMeasure(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise CannotMeasure(f"{path}: {error}") from None
