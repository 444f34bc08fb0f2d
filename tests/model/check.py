"""Checks the model of a slot's life with SPIN, exhaustively, one configuration after the other.

    python tests/model/check.py              what CI checks, and the negative controls
    python tests/model/check.py --large      the larger configurations too; minutes, and 7 GB
    python tests/model/check.py --trace X    the steps by which control X goes wrong

Needs spin and gcc. Exits with 1 where a property does not hold, a search was cut short, or a
control was not caught. README.md beside this file says what all of it means.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from model.configurations import CONFIGURATIONS, CONTROLS, LARGE, Configuration
from model.spin import (
    LARGE_MIB,
    QUICKLY,
    SMALL_MIB,
    THOROUGHLY,
    missing_tools,
    trace,
    verify,
    verify_control,
)


def _check(
    configurations: Mapping[str, Configuration], limit_mib: int, options: Sequence[str]
) -> bool:
    print(f"{'configuration':24}{'states':>12}{'depth':>7}{'s':>8}{'MiB':>7}  ")
    holds = True
    for name, configuration in configurations.items():
        result = verify(
            configuration.defines,
            comes_to_rest=configuration.comes_to_rest,
            limit_mib=limit_mib,
            options=options,
        )
        verdict = "holds" if result.exhaustive else "CUT SHORT"
        if result.errors:
            verdict = f"BROKEN: {result.violated or 'see pan'}"
        holds &= verdict == "holds"
        print(
            f"{name:24}{result.states:12,}{result.depth:7}{result.seconds:8.1f}"
            f"{result.memory_mib:7.0f}  {verdict}",
            flush=True,
        )
    return holds


def _check_controls() -> bool:
    print(f"\n{'control':26}found")
    caught = True
    for name, control in CONTROLS.items():
        result = verify_control(name)
        is_caught = result.violated in control.breaks
        caught &= is_caught
        print(
            f"{name:26}{result.violated or 'nothing'}{'' if is_caught else ': NOT CAUGHT'}",
            flush=True,
        )
    return caught


def main() -> int:
    """Check and print; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--large", action="store_true", help="the larger configurations too")
    parser.add_argument("--trace", choices=CONTROLS, help="how a control goes wrong, step by step")
    arguments = parser.parse_args()
    if missing := missing_tools():
        print(f"not installed: {', '.join(missing)}", file=sys.stderr)
        return 2
    if arguments.trace:
        print(*trace(arguments.trace), sep="\n")
        return 0
    holds = _check(CONFIGURATIONS, SMALL_MIB, QUICKLY)
    if arguments.large:
        holds &= _check(LARGE, LARGE_MIB, THOROUGHLY)
    return 0 if _check_controls() and holds else 1


if __name__ == "__main__":
    sys.exit(main())
