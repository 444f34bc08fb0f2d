"""Kills, stops and poisons the processes of a real server under load, and reckons up.

    python tests/chaos/run.py --kills 200 --role worker
    python tests/chaos/run.py --kills 200 --role collector --loading 10
    python tests/chaos/run.py --kills 200 --role worker --workers 1 --spares 1
    python tests/chaos/run.py --stops 50 --role collector
    python tests/chaos/run.py --wedges 10 --role collector
    python tests/chaos/run.py --poison exits
    python tests/chaos/run.py --fault descriptors --afflicted supervisor --role worker
    python tests/chaos/run.py --squeezes 5
    python tests/chaos/run.py --soak 1200 --load 0.8 --every 5
    python tests/chaos/run.py --hail 35 --workers 2 --clients 16 --rate 200
    python tests/chaos/run.py --soak 600 --load 0.2 --workers 2 --clients 4 --streams 64
    python tests/chaos/run.py --soak 60 --every 2 --role worker --device cuda:0

The exit status is 1 where anything broke the law of `chaos.ledger`, and 3 where the host does not
let us have a fault.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "harness"))

from chaos.acts import faults, hail, kills, poison, soak, squeezed, stops, wedges
from chaos.faults import FAULTS, Impossible
from chaos.havoc import ROLES
from chaos.keyed import Deed
from chaos.play import Play

DEEDS = [deed.name.lower() for deed in Deed if deed is not Deed.NONE]


_IMPOSSIBLE = 3
"""The exit status where the host does not let us have a fault."""


def main() -> int:
    """Run what the flags say."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    act = parser.add_mutually_exclusive_group(required=True)
    act.add_argument("--kills", type=int, metavar="N", help="kill N processes of a role")
    act.add_argument("--stops", type=int, metavar="N", help="SIGSTOP N processes of a role")
    act.add_argument("--wedges", type=int, metavar="N", help="SIGSTOP N of a role for ever")
    act.add_argument("--fault", choices=FAULTS, help="have the host refuse something")
    act.add_argument("--squeezes", type=int, metavar="N", help="N times too little memory for all")
    act.add_argument("--poison", choices=DEEDS, help="send requests that do that to the model")
    act.add_argument("--soak", type=float, metavar="S", help="S seconds of load and kills")
    act.add_argument("--hail", type=float, metavar="S", help="S seconds of a kill nearly each")
    parser.add_argument(
        "--role", choices=ROLES, help="of the processes; of a soak's by default any"
    )
    parser.add_argument(
        "--afflicted",
        choices=ROLES,
        action="append",
        default=[],
        help="whose processes are refused what --fault says; may be repeated",
    )
    parser.add_argument("--times", type=int, default=1, help="how often --fault comes")
    parser.add_argument("--every", type=float, metavar="S", help="seconds between two kills")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long a stop takes")
    parser.add_argument("--load", type=float, default=0.8, help="share of the capacity in a soak")
    parser.add_argument(
        "--loading", type=float, default=0.0, metavar="S", help="how long a worker takes to load"
    )
    parser.add_argument("--workers", type=int, default=4, help="that may be killed")
    parser.add_argument("--spares", type=int, default=0, help="beside these workers")
    parser.add_argument(
        "--chain", action="store_true", help="the model is a chain of two, each with so many"
    )
    parser.add_argument(
        "--device", default="", help="of a model in torch, such as cuda:0; default a model in numpy"
    )
    parser.add_argument("--clients", type=int, default=64, help="connections over HTTP")
    parser.add_argument("--streams", type=int, default=0, help="clients of answers in parts beside")
    parser.add_argument("--rate", type=float, help="requests/s of all clients; default no limit")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    options = parser.parse_args()
    if options.role is None and (options.kills or options.stops or options.wedges):
        parser.error("--kills, --stops and --wedges need a --role")
    if options.device and (options.chain or options.poison):
        parser.error("--device is for a model that is neither a chain nor poisoned")
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        try:
            play = asyncio.run(_play(options, Path(folder)))
        except Impossible as reason:
            print(f"not possible here: {reason}")
            return _IMPOSSIBLE
    for line in play.report():
        print(line, flush=True)
    return 1 if play.problems else 0


async def _play(options: argparse.Namespace, folder: Path) -> Play:
    given = {
        "seed": options.seed,
        "clients": options.clients,
        "rate_per_s": options.rate,
        "load_s": options.loading,
        "chain": options.chain,
        "device": options.device,
        "streams": options.streams,
    }
    if options.kills:
        given |= {"workers": options.workers, "spares": options.spares}
        return await kills(folder, options.role, options.kills, every_s=options.every, **given)
    if options.stops:
        return await stops(folder, options.role, options.stops, options.seconds, **given)
    if options.wedges:
        return await wedges(folder, options.role, options.wedges, **given)
    if options.fault:
        killed = [options.role] if options.role else []
        return await faults(
            folder,
            options.fault,
            options.afflicted,
            killed,
            times=options.times,
            seconds=options.seconds,
            **given,
        )
    if options.squeezes:
        return await squeezed(folder, times=options.squeezes, **given)
    if options.poison:
        return await poison(folder, Deed[options.poison.upper()], **given)
    if options.hail:
        roles = [options.role] if options.role else ["worker", "collector"]
        return await hail(folder, roles, options.hail, workers=options.workers, **given)
    roles = [options.role] if options.role else ["worker", "collector", "frontend"]
    return await soak(folder, roles, options.soak, options.load, options.every or 5.0, **given)


if __name__ == "__main__":
    raise SystemExit(main())
