"""``ringbatch handover``: serve in the stead of a running engine."""

import argparse
import sys
from collections.abc import Callable
from typing import Final

from ringbatch.engine.command import engine_arguments
from ringbatch.engine.config.settings import Config
from ringbatch.shm.errors import StartupError

_TIMEOUT_S: Final = 600.0

EXAMPLES: Final = """\
Starts an engine with this code and configuration beside the one that serves under its name, on the
same listening sockets. Once the new one is ready, the other one answers what it has and ends. No
request fails for it. Where the new one does not get ready, the other one serves on, the reason is
printed, and the exit status is 2.

This command does not return after that: it is the new engine, and stays in the foreground as serve
does, until it is stopped. Start it the way that serve was started, such as nohup ... &.

Both need memory for as long as both run: that of all models, and lanes in /dev/shm. Clients over
gRPC stay with the old engine until their connections have grpc_connection_age_s. An engine that
systemd runs is not replaced; restart its unit, whose sockets keep connections meanwhile.

examples:
  ringbatch handover --config ringbatch.toml
  ringbatch handover --config ringbatch.toml --timeout 120
  nohup ringbatch handover --config new.toml --engine prod >>prod.log 2>&1 &
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what it takes beside the arguments of ``serve``."""
    parser.usage = "ringbatch handover [MODEL] [--name NAME] [--config FILE] [options]"
    parser.add_argument(
        "--timeout",
        type=engine_arguments.seconds,
        default=_TIMEOUT_S,
        metavar="S",
        help="seconds within which the new engine must be ready (default: %(default)g)",
    )
    engine_arguments.add_flags(parser, "the one that has the new one's name")


def main(arguments: argparse.Namespace, config: Config, reread: Callable[[], Config]) -> int:
    """Serve until a signal says stop; the exit status.

    Args:
        arguments: of the command.
        config: what they say.
        reread: reads the configuration again, for a reload.

    Raises:
        StartupError: the engine that ran serves on; the text says why.
    """
    from ringbatch.engine.supervisor.handover import Predecessor
    from ringbatch.engine.supervisor.run import run

    engine = arguments.engine or config.server.name
    print(
        f"ringbatch: starting an engine in the place of {engine}; once it serves, this command is "
        "that engine, and stays in the foreground until it is stopped",
        file=sys.stderr,
    )
    try:
        return run(config, reread, lambda: Predecessor(engine, arguments.timeout))
    except StartupError as error:
        raise StartupError(f"{error}\nnothing was handed over") from None
