"""``ringbatch check``: what ``ringbatch serve`` would refuse, said without serving anything."""

import argparse
import sys
from typing import Final

from ringbatch.engine.config.document import describe
from ringbatch.engine.config.settings import Config
from ringbatch.shm.errors import StartupError
from ringbatch.shm.model_spec import FIRST_VERSION

EXAMPLES: Final = """\
Prints the whole configuration, defaults included, and exits with status 0; or prints what serve
would end with here, and exits with status 2: everything that is wrong with the configuration, then
what the host lacks for it, such as a port, a CPU, room in /dev/shm, a package, or a key that can be
read. Settings that have no effect together are told on standard error. Nothing is served. An engine
of the same name that runs is no obstacle: it may have the ports, as it goes first.

With --load each version of each model is loaded by a process of its own, with the limits on time
and memory that it has, and warmed up. What that took is printed, in lines that begin with #; a
model that would not be served gets words on standard error and status 2.

examples:
  ringbatch check --config ringbatch.toml
  ringbatch check --config ringbatch.toml --load
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what it takes beside the configuration file."""
    parser.add_argument("--load", action="store_true", help="load every model and warm it up")
    parser.add_argument(
        "--sockets-passed",
        action="store_true",
        help="systemd passes the sockets for HTTP, so that it may have the port",
    )


def main(config: Config, *, load: bool, sockets_passed: bool) -> int:
    """Look at the host, print the configuration, and load the models where that is wanted.

    Returns:
        The exit status.

    Raises:
        StartupError: an engine of that configuration would not start; a line for each reason.
    """
    from ringbatch.engine.doctor.obstacles import obstacles

    if found := obstacles(config, passed=sockets_passed):
        raise StartupError("\n".join(found))
    print(describe(config), flush=True)
    if load and (failures := _loaded(config)):
        raise StartupError("\n".join(failures))
    return 0


def _loaded(config: Config) -> list[str]:
    """Load every model; why some would not be served."""
    from ringbatch.engine.report.models import time_lines
    from ringbatch.engine.supervisor.rehearsal import rehearse
    from ringbatch.shm.host.process import log_to_stderr

    log_to_stderr("check", config.server.log_level)
    failures = []
    for found in rehearse(config):
        model = found.model
        title = model.name if model.version == FIRST_VERSION else f"{model.name}:{model.version}"
        if found.failure:
            failures.append(f"{title}: {found.failure}")
            continue
        took = f"opened in {found.opened_s:.2f} s, loaded in {found.loaded_s:.2f} s"
        if found.trials:
            took += f", warmed up in {found.warmed_s:.2f} s"
        for line in (f"{title}: {took}", *time_lines(found.trials)):
            print(f"# {line}", file=sys.stdout, flush=True)
    return failures
