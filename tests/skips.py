"""Skipped tests: each reason with the place where such tests run, and a check that they did.

`.ci/run` has each of its runs of pytest write down which tests ran and which were skipped, and asks
at its end for those that were skipped in every step::

    python3 tests/skips.py FOLDER

Without Python packages, because it runs beside all environments.
"""

import json
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

VARIABLE: Final = "RINGBATCH_OUTCOMES"
"""Names the folder in which a run of pytest writes its outcomes."""

_UP_TO_3_13: Final = r"kserve is not installed|faster-fifo"
"""CI has these packages up to that Python."""
STEPS: Final[Mapping[str, str]] = {
    r"not installed: torch|torch is not installed": "torch runtime",
    r"not installed: openai": "text runtime",
    r"(xgboost|lightgbm|catboost|openvino)('| is not installed)": "tree runtimes",
    r"ray is not installed": "ray runtime",
    r"RINGBATCH_PERF_ANALYZER is not set": "Triton's tools",
    r"could not import '(yaml|onnxruntime|grpc|tritonclient.http|pandas)": "README: tests",
    r"could not import 'starlette'": "README: tests",
    r"nvidia-ml-py is not installed": "README: tests",
    r"machine code has no bytecodes|compiled code sets attributes unseen": "README: tests",
    r"as a distribution here, only linked": "README: tests",
    r"needs valgrind and gcc|there is no gcc|not installed: (spin|gcc)": "README: tests",
    r"haproxy is not installed": "README: tests",
    r"Debian: (haproxy, nginx-light|tmux)\)": "exhaustive tests",
    r"protoc is in the extra|schemathesis is not installed": "exhaustive tests",
    r"could not import 'fastapi'": "exhaustive tests",
    **({_UP_TO_3_13: "exhaustive tests"} if sys.version_info < (3, 14) else {}),
}
"""Reasons by what one step of CI has, and that step. There such a test runs, unless the host keeps
it from running."""

HOSTS: Final[Mapping[str, str]] = {
    r"there is no CUDA device": "with a CUDA device, of the tests that torch's step has, and "
    "tests/serve/test_cuda.py",
    r"this onnxruntime has no CUDA provider": "with a CUDA device and onnxruntime-gpu",
    r"older versions of torch": "with torch 2.13 or newer, as in CI",
    r"this XGBoost does not save|this skops trusts": "with another release of the package",
    _UP_TO_3_13: "with an older Python",
    r"IPv6|this host has no (::1|127\.0\.0\.1)|no address but 127\.0\.0\.1": "with such addresses",
    r"only root |for this user|without privileges": "where the tests are root's",
    r"no user namespaces|unshare|^mount: |may be (mounted|hidden) here": "with namespaces",
    r"no limits of CPU time|no control group": "where control groups can be made",
    r"no systemd of our own|systemd is not installed": "with systemd, and namespaces",
    r"image can be built|container": "where podman may run, and registries can be reached",
    r"there is no .* here": "where the tools that it names are; .ci/run installs Debian's",
    r"Debian: (prometheus|chromium|nginx-light, haproxy|golang-go)": "where that package is; "
    ".ci/run installs it as root",
    r"curl": "where curl speaks HTTP/2",
    r"openssl is not installed": "where openssl is",
    r"/dev/shm is large": "with a /dev/shm of an ordinary size",
    r"of /dev/shm, which has": "with a larger /dev/shm",
    r"open files are not allowed": "where the limit of open files can be raised",
}
"""Reasons by what a host is or has, and hosts on which such tests run."""


class Outcome(NamedTuple):
    """Result of a test, or of a file whose tests were all skipped.

    Attributes:
        test: its name for pytest.
        reason: why it was skipped; None where it ran.
    """

    test: str
    reason: str | None


class Outcomes:
    """Plugin for pytest that writes outcomes, one in each line of a new file of a folder."""

    def __init__(self, folder: str) -> None:
        number, _ = tempfile.mkstemp(suffix=".jsonl", dir=folder)
        self._file = os.fdopen(number, "w", buffering=1)

    def pytest_collectreport(self, report: Any) -> None:
        """Write a file that is skipped; pytest's call."""
        if report.skipped:
            self._write(report)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Write a test's outcome; pytest's call, up to three times for each test."""
        if report.skipped or report.when == "call":
            self._write(report)

    def pytest_unconfigure(self) -> None:
        """Close the file, at the end of pytest."""
        self._file.close()

    def _write(self, report: Any) -> None:
        skipped = report.skipped and not hasattr(report, "wasxfail")
        # A path, a line, and the words.
        reason = report.longrepr[2].removeprefix("Skipped: ") if skipped else None
        print(json.dumps(Outcome(report.nodeid, reason)), file=self._file)


def problems(outcomes: Iterable[Outcome]) -> list[str]:
    """Return the reasons that no table has, and the tests that ran in no step of CI though one has
    what they need."""
    ran, skipped = set[str](), dict[str, set[str]]()
    for test, reason in outcomes:
        if reason is None:
            ran |= {test, test.partition("::")[0]}
        else:
            skipped.setdefault(test, set()).add(reason)
    reasons = sorted(set().union(*skipped.values()))
    found = [f"in no table of tests/skips.py: {reason}" for reason in reasons if not where(reason)]
    for test in sorted(set(skipped) - ran):
        places = [where(reason) for reason in skipped[test]]
        if set(places) <= set(STEPS.values()):
            words = "; ".join(sorted(skipped[test]))
            found.append(f"skipped in every step: {test}: {words}")
    return found


def where(reason: str) -> str:
    """Return the place where tests run that are skipped for this reason elsewhere; empty if no
    table has it."""
    places = (
        place for words, place in (*STEPS.items(), *HOSTS.items()) if re.search(words, reason)
    )
    return next(places, "")


def read(folder: Path) -> list[Outcome]:
    """Return all that runs have written into a folder."""
    lines = [line for file in folder.iterdir() for line in file.read_text().splitlines()]
    return [Outcome(*json.loads(line)) for line in lines]


def main() -> int:
    """Print the problems of a folder; 1 if there is one."""
    outcomes = read(Path(sys.argv[1]))
    found = problems(outcomes)
    print(*found, sep="\n")
    print(f"{len({outcome.test for outcome in outcomes})} tests, {len(found)} problems")
    return int(bool(found) or not outcomes)


if __name__ == "__main__":
    sys.exit(main())
