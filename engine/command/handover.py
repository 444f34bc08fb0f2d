"""``ringbatch handover``: replace a running engine without a failed request."""

import argparse
import sys
from collections.abc import Callable
from typing import Final

from ringbatch.engine.command import engine_arguments
from ringbatch.engine.command.lasting_imports import lasting_imports
from ringbatch.engine.config.settings import Config
from ringbatch.shm.errors import StartupError

_TIMEOUT_S: Final = 600.0

EXAMPLES: Final = """\
Starts an engine with the installed code and this configuration beside the engine that serves under
its name, on the same listening sockets. Once the new engine is ready, the old one answers the
requests that it has, and ends. No request fails. If the new engine does not become ready within
--timeout, the old one serves on, and the reason is printed.

The command then is the new engine, and stays in the foreground like serve until it is stopped.
Start it the way that serve was started, such as nohup ... &.

Both engines need memory while both run: for all models, and for lanes in /dev/shm. gRPC clients
stay with the old engine until their connections have grpc_connection_age_s. An engine that systemd
runs is not replaced; restart its unit, whose sockets hold the connections until it serves again.

exit status:
  0  the new engine took over, and a signal stopped it later
  1  the new engine took over, and failed later
  2  nothing was handed over, and the old engine serves on
  130  a second Ctrl-C ended the engine at once, without answers to requests in flight
  143  a second SIGTERM did so

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
        config: the configuration that they name.
        reread: reads the configuration again, for a reload.

    Raises:
        StartupError: the engine that ran serves on; the text says why.
    """
    with lasting_imports():
        from ringbatch.engine.supervisor.handover import OldEngine
        from ringbatch.engine.supervisor.run import run

    engine = arguments.engine or config.server.name
    print(
        f"ringbatch: starting an engine in the place of {engine}; once it serves, this command is "
        "that engine, and stays in the foreground until it is stopped",
        file=sys.stderr,
    )
    try:
        return run(config, reread, lambda: OldEngine(engine, arguments.timeout))
    except StartupError as error:
        raise StartupError(f"{error}\nnothing was handed over") from None
