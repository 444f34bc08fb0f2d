"""``ringbatch check``: reports everything that ``ringbatch serve`` would refuse."""

import argparse
import os
import sys
from contextlib import closing
from math import inf
from typing import Final

from ringbatch.engine.config.description import describe
from ringbatch.engine.config.settings import Config
from ringbatch.shm.errors import StartupError
from ringbatch.shm.model_spec import FIRST_VERSION

TOLERANCE: Final = 1e-4
EXAMPLES: Final = """\
Prints the configuration, with --settings all of it. If serve could not start here, it prints why:
everything that is wrong with the configuration, then everything that the host lacks, such as a
port, a CPU, room in /dev/shm, a package, or a readable key. It serves nothing. One of MODEL and
--config is needed; MODEL and flags are those of serve. Settings without effect are named on
standard error. A running engine of the same name does not count as an obstacle: the last lines name
the ports that it has.

With --load, a process of its own loads and warms up each version of each model, with the limits on
time and memory that it has. Models with ray_workers are loaded in the Ray cluster too. It compares
the steps of chains, and imports app. It prints how long that took, in lines that begin with #.

With --parity, each model also runs samples alone, in batches of every size, and beside other
neighbours. It prints the largest difference of each output. Numbers may differ by --tolerance, and
relative to their size above 1; whole numbers and texts must be equal. Samples come from FILE (a
list of instances, a V1 or V2 body, or a list of V2 bodies), else from warm_up_file, or are made up.

exit status:
  0  serve would start here
  2  serve would not start, a model would not load, or answers differ

examples:
  ringbatch check --config ringbatch.toml
  ringbatch check --config ringbatch.toml --load
  ringbatch check model.py --load
  ringbatch check --config ringbatch.toml --parity samples.json --tolerance 1e-5
"""
_WELL: Final = "nothing would keep serve from starting here"
_WELL_OTHERWISE: Final = "nothing else would keep serve from starting here"
_NOT_LOADED: Final = (
    "; --load loads the models too, --settings prints all settings with their defaults"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what it takes beside the configuration file."""
    parser.add_argument(
        "--settings", action="store_true", help="print every setting, not only those that are set"
    )
    parser.add_argument(
        "--load", action="store_true", help="load and warm up every model, import app"
    )
    parser.add_argument(
        "--parity",
        nargs="?",
        const="",
        metavar="FILE",
        help="compare each model's answers alone and in company, with samples of a file or made up",
    )
    parser.add_argument(
        "--tolerance",
        type=_tolerance,
        default=TOLERANCE,
        metavar="X",
        help="difference that --parity allows, of numbers above 1 relative (default: %(default)s)",
    )
    parser.add_argument(
        "--sockets-passed",
        action="store_true",
        help="systemd passes the sockets for HTTP, so that it may have the port",
    )


def _tolerance(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < inf:
        raise argparse.ArgumentTypeError(f"must be a number above 0, not {text!r}")
    return found


def main(
    config: Config,
    *,
    every: bool,
    load: bool,
    sockets_passed: bool,
    parity: str | None = None,
    tolerance: float = TOLERANCE,
) -> int:
    """Look at the host, print the configuration, and load the models if that is wanted.

    Args:
        config: that is looked at.
        every: whether to print settings with default values too.
        load: whether models are loaded.
        sockets_passed: whether systemd passes the sockets for HTTP.
        parity: the file with samples with which answers are compared; empty if these are made
            up, None if nothing is compared.
        tolerance: of their differences.

    Returns:
        The exit status.

    Raises:
        StartupError: an engine of that configuration would not start; a line for each reason.
    """
    from ringbatch.engine.doctor.obstacles import outlook
    from ringbatch.engine.doctor.probes import exposed

    here = outlook(config, passed=sockets_passed)
    if here.obstacles:
        raise StartupError("\n".join(here.obstacles))
    if parity and len(config.models) > 1:
        raise StartupError(
            f"--parity {parity}: there are {len(config.models)} models, and a file is for one; "
            "name the file of each in its warm_up_file, and give --parity none"
        )
    for exposure, do in exposed(config.server, os.environ):
        print(f"ringbatch: {exposure}; {do}", file=sys.stderr)
    print(describe(config, defaults=every), flush=True)
    wanted = load or parity is not None
    if wanted and (failures := _loaded(config, parity, tolerance)):
        raise StartupError("\n".join(failures))
    for line in here.held:
        print(f"# {line}")
    well = _WELL_OTHERWISE if here.held else _WELL
    print(f"# {well}{'' if wanted else _NOT_LOADED}", flush=True)
    return 0


def _loaded(config: Config, parity: str | None, tolerance: float) -> list[str]:
    """Load every model; why some would not be served, or answer otherwise in company."""
    from ringbatch.engine.report.models import time_lines
    from ringbatch.engine.supervisor.application_check import expect_importable
    from ringbatch.engine.supervisor.frontends import LEAN
    from ringbatch.engine.supervisor.launching import OF_WORKERS, ForkServer
    from ringbatch.engine.supervisor.load_check import check_loading, unfit_chain
    from ringbatch.shm.host.process import log_to_stderr

    # Workers have logs of their own, so the fork server begins before this process has one.
    with closing(ForkServer(OF_WORKERS)) as launch:
        log_to_stderr("check", config.server.log_level)
        failures = []
        if config.server.app is not None:
            try:
                expect_importable(config.server.app, LEAN)
            except StartupError as error:
                failures.append(str(error))
        results = []
        for found in check_loading(config, launch, parity, tolerance):
            results.append(found)
            model = found.model
            title = (
                model.name if model.version == FIRST_VERSION else f"{model.name}:{model.version}"
            )
            if found.in_ray and model.ray_workers:
                title += " in the Ray cluster"
            if found.failure:
                failures.append(f"{title}: {found.failure}")
                continue
            took = f"opened in {found.opened_s:.2f} s, loaded in {found.loaded_s:.2f} s"
            if found.trials:
                took += f", warmed up in {found.warmed_s:.2f} s"
            for line in (f"{title}: {took}", *time_lines(found.trials)):
                print(f"# {line}", file=sys.stdout, flush=True)
            if found.compared is not None:
                for line in found.compared.lines:
                    print(f"# {title}: {line}", flush=True)
                failures += [
                    f"{title}: {line}: beyond the tolerance of {tolerance:g}, so its answers "
                    "depend on the company that a sample has"
                    for line in found.compared.apart
                ]
        if unfit := unfit_chain(config, results):
            failures.append(unfit)
    return failures
