"""Arguments of ``ringbatch tune``, whose package is imported when it runs."""

import argparse
import os
from pathlib import Path
from typing import Final

from ringbatch.engine.command import engine_arguments
from ringbatch.engine.command.bench import add_request, add_stream, limits_in, positive
from ringbatch.engine.config.document import load
from ringbatch.engine.config.problems import ConfigError, quoted
from ringbatch.engine.config.settings import Config
from ringbatch.shm.errors import StartupError

EXAMPLES: Final = """\
Finds the max_batch_size, workers, threads, frontends and policy with which this host serves a model
best. It starts the engine on free ports with one choice after the other, and measures each in a
closed loop. All earlier trials decide which choice comes next (Bayesian optimisation), and a good
choice is tried again, because it may have been lucky. Last it measures its choice and the present
configuration in turn, three to six times each. Those runs alone decide whether the choice is
better.

It prints what each value is worth with all others as chosen, estimates marked as such, and the TOML
to paste. If nothing is proven to be better by 3 %, it says so. Progress goes to standard error.
When --budget-s is over, it ends with what it has. With --p99-ms the target is the most requests/s
of which 99 % are answered in that time; without it, the most requests/s.

For a model in steps, max_batch_size is its number of places, and policy has no effect, so it is not
tried. With --stream, --slo-first-part-ms and --slo-gap-ms limit the p99 of the time to the first
part and of the gap between two parts.

exit status:
  0  measured, whether or not a change is worth it
  2  there is no figure, and the reason is on standard error

examples:
  ringbatch tune --config ringbatch.toml
  ringbatch tune --config ringbatch.toml --p99-ms 20
  ringbatch tune --config ringbatch.toml --model mnist --request body.json --keep workers,policy
  ringbatch tune --config ringbatch.toml --request body.json --stream --slo-gap-ms 50
"""

_KEYS: Final = ("max_batch_size", "workers", "threads", "frontends", "policy")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what it takes."""
    parser.add_argument(
        "--config", type=Path, required=True, metavar="FILE", help="the configuration, TOML"
    )
    add_request(parser)
    add_stream(parser, "any number", "any number")
    parser.add_argument(
        "--p99-ms",
        type=positive,
        metavar="MS",
        help="milliseconds that 99 %% of the requests may take (default: any number)",
    )
    parser.add_argument(
        "--budget-s",
        type=engine_arguments.seconds,
        default=600.0,
        metavar="S",
        help="seconds after which no further trial begins (default: %(default)g)",
    )
    parser.add_argument(
        "--keep",
        type=_keys,
        default=(),
        metavar="LIST",
        help=f"settings that stay as they are, with commas: {', '.join(_KEYS)}",
    )
    parser.add_argument(
        "--even-if-busy", action="store_true", help="measure though the host does other things"
    )


def main(arguments: argparse.Namespace) -> int:
    """Find settings, and print them; the exit status.

    Raises:
        StartupError: there is no figure, and why.
    """
    from ringbatch.bench.command.settings import Protocol, Settings
    from ringbatch.bench.command.tune import Goal, limits_of, tune

    settings = Settings(
        model=arguments.model,
        config=arguments.config,
        request=arguments.request,
        protocol=arguments.protocol and Protocol(arguments.protocol),
        headers=arguments.header,
        stream=arguments.stream,
        even_if_busy=arguments.even_if_busy,
    )
    _expect_model(arguments.config, arguments.model)
    limits = limits_in(arguments)
    slo = limits_of(arguments.p99_ms, **limits)
    return tune(
        Goal(
            config=arguments.config,
            bench=settings,
            slo=slo,
            budget_s=arguments.budget_s,
            keep=arguments.keep,
            present=present_in(arguments.config, arguments.model),
        )
    )


def _expect_model(path: Path, model: str | None) -> None:
    """Find out what is wrong with a configuration and a model's name before the host is looked at.

    Raises:
        StartupError: the configuration is wrong, or has no model of that name.
    """
    config = load(path)
    if model is not None and model not in config.names:
        known = ", ".join(config.names)
        raise StartupError(f"--model: found {quoted(model)}, but {path} has: {known}")


def present_in(path: Path, model: str | None) -> dict[str, int | float | str]:
    """Return a file's values of tuned settings, defaults included; none if it is no configuration.

    Args:
        path: of the file.
        model: that is tuned; None for the only one.
    """
    try:
        return present(load(path), model, len(os.sched_getaffinity(0)))
    except ConfigError:
        # The engine that starts next reports the error.
        return {}


def present(config: Config, model: str | None, cpus: int) -> dict[str, int | float | str]:
    """Return a configuration's values of tuned settings, if one value holds for the whole run.

    Args:
        config: the configuration.
        model: that is tuned; None for the only one.
        cpus: of the host.
    """
    found: dict[str, int | float | str] = {"frontends": config.server.frontends}
    named = [one for one in config.models if model in (None, one.name)]
    if len(named) != 1:
        return found
    one = named[0]
    found |= {"max_batch_size": one.max_batch_size, "policy": one.policy}
    if one.policy == "fixed":
        found["max_latency_ms"] = one.max_latency_ms
    threads = one.threads
    if threads is None and isinstance(one.workers, int) and len(config.models) == 1:
        threads = max(cpus // max(one.workers, 1), 1)
    if threads is not None and isinstance(one.workers, int):
        found |= {"workers": one.workers, "threads": threads}
    return found


def _keys(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(","))
    if unknown := [key for key in found if key not in _KEYS]:
        raise argparse.ArgumentTypeError(
            f'found "{", ".join(unknown)}", but it must be of {", ".join(_KEYS)}'
        )
    return found
