"""``ringbatch check``: what ``ringbatch serve`` would refuse, said without serving anything."""

import argparse
import os
import sys
from math import inf
from typing import Final

from ringbatch.engine.config.description import describe
from ringbatch.engine.config.settings import Config
from ringbatch.shm.errors import StartupError
from ringbatch.shm.model_spec import FIRST_VERSION

TOLERANCE: Final = 1e-4
EXAMPLES: Final = """\
Prints what is configured, all of it with --settings, and exits with status 0; or prints what serve
would end with here, and exits with status 2: everything that is wrong with the configuration, then
what the host lacks for it, such as a port, a CPU, room in /dev/shm, a package, or a key that can be
read. A MODEL and flags say what they say to serve; one of MODEL and --config is needed. Settings
that have no effect together are told on standard error. Nothing is served. An engine of the same
name that runs is no obstacle: it may have the ports, as it goes first.

With --load each version of each model is loaded by a process of its own, with the limits on time
and memory that it has, and warmed up, with ray_workers in the Ray cluster too; the steps of chains
are held against each other, and app is imported. What that took is printed, in lines that begin
with #; what would not be served gets words on standard error and status 2.

With --parity each model is loaded likewise, and runs samples alone, in batches of every size,
padded where batches are padded, and beside other neighbours, also long ones where lengths are
padded. The largest difference of each output is printed; one beyond --tolerance times the size of
the number, where that is above 1, gets status 2, and so does any difference of whole numbers and
texts. Samples are those of FILE (a list of instances, a V1 or V2 body, or a list of V2 bodies), of
a model's warm_up_file, or made up from its inputs.

examples:
  ringbatch check --config ringbatch.toml
  ringbatch check --config ringbatch.toml --load
  ringbatch check model.py --load
  ringbatch check --config ringbatch.toml --parity samples.json --tolerance 1e-5
"""
_WELL: Final = "nothing would keep serve from starting here"
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
    """Look at the host, print the configuration, and load the models where that is wanted.

    Args:
        config: that is looked at.
        every: whether to print settings with default values too.
        load: whether models are loaded.
        sockets_passed: whether systemd passes the sockets for HTTP.
        parity: the file with samples with which answers are compared; empty where these are made
            up, None where nothing is compared.
        tolerance: of their differences.

    Returns:
        The exit status.

    Raises:
        StartupError: an engine of that configuration would not start; a line for each reason.
    """
    from ringbatch.engine.doctor.obstacles import obstacles
    from ringbatch.engine.doctor.probes import exposed

    if found := obstacles(config, passed=sockets_passed):
        raise StartupError("\n".join(found))
    if parity and len(config.models) > 1:
        raise StartupError(
            f"--parity {parity}: there are {len(config.models)} models, and a file is for one; "
            "name the file of each in its warm_up_file, and give --parity none"
        )
    for what, do in exposed(config.server, os.environ):
        print(f"ringbatch: {what}; {do}", file=sys.stderr)
    print(describe(config, defaults=every), flush=True)
    wanted = load or parity is not None
    if wanted and (failures := _loaded(config, parity, tolerance)):
        raise StartupError("\n".join(failures))
    print(f"# {_WELL}{'' if wanted else _NOT_LOADED}", flush=True)
    return 0


def _loaded(config: Config, parity: str | None, tolerance: float) -> list[str]:
    """Load every model; why some would not be served, or answer otherwise in company."""
    from ringbatch.engine.report.models import time_lines
    from ringbatch.engine.supervisor.application_check import expect_importable
    from ringbatch.engine.supervisor.frontends import LEAN
    from ringbatch.engine.supervisor.load_check import rehearse, unfit_chain
    from ringbatch.shm.host.process import log_to_stderr

    log_to_stderr("check", config.server.log_level)
    failures = []
    if config.server.app is not None:
        try:
            expect_importable(config.server.app, LEAN)
        except StartupError as error:
            failures.append(str(error))
    rehearsed = []
    for found in rehearse(config, parity, tolerance):
        rehearsed.append(found)
        model = found.model
        title = model.name if model.version == FIRST_VERSION else f"{model.name}:{model.version}"
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
    if unfit := unfit_chain(config, rehearsed):
        failures.append(unfit)
    return failures
