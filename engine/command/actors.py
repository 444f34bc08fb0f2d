"""``ringbatch actors``: lists and ends a Ray cluster's actors for engines."""

import argparse
from pathlib import Path
from typing import Final

from ringbatch.engine.config.document import load
from ringbatch.engine.config.settings import ModelConfig

EXAMPLES: Final = """\
Lists the actors in a Ray cluster that hold models for engines of this host and of others. The
cluster is that of --config, or that at --address. This host must be a node of it.

With --end, the actors end and give back their resources. A running engine then makes new ones.

exit status:
  0  printed, or ended
  2  there is no such cluster, or the configuration is wrong

examples:
  ringbatch actors
  ringbatch actors prod --end
  ringbatch actors --config ringbatch.toml
  ringbatch actors --address 10.0.0.1:6379 --namespace staging
"""

_DEFAULTS: Final = ModelConfig(name="", path="")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what it takes."""
    parser.add_argument(
        "named", nargs="?", metavar="ENGINE", help="the name of an engine (default: every engine)"
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="a configuration file, TOML")
    parser.add_argument(
        "--address",
        default=_DEFAULTS.ray_address,
        metavar="ADDRESS",
        help="of the cluster (default: %(default)s)",
    )
    parser.add_argument(
        "--namespace",
        default=_DEFAULTS.ray_namespace,
        metavar="NAME",
        help="of the actors (default: %(default)s)",
    )
    parser.add_argument("--end", action="store_true", help="end them")


def main(arguments: argparse.Namespace) -> int:
    """Print the actors, end them if that is wanted, and return the exit status.

    Raises:
        StartupError: there is no such cluster, or the configuration is wrong.
    """
    from ringbatch.engine.runtimes.ray.listing import actors

    places = [(arguments.address, arguments.namespace)]
    if arguments.config is not None:
        models = [model for model in load(arguments.config).models if any(model.in_ray)]
        places = [(model.ray_address, model.ray_namespace) for model in models]
    for place in dict.fromkeys(places):
        found = actors(*place, arguments.named, end=arguments.end)
        for actor in found:
            print(f"{actor.line}; ended" if arguments.end else actor.line)
        if not found:
            print(f"no actors in namespace {place[1]} of the cluster at {place[0]}")
    return 0
