"""Pictures of the documentation: two charts of the page of `ringbatch bench`, from a result.

    ringbatch bench --config ringbatch.toml --slo-ms 20
    python bench/pictures.py ringbatch-bench/mnist-20261124T030000.json

The pictures are in `docs/pictures`, the result is kept in `bench/pictures/result.json`; without an
argument they are drawn anew from it.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Final

from peers.servers import BENCH

from ringbatch.bench.report.page import LATENCY, STAGES, figures
from ringbatch.bench.report.picture import picture
from ringbatch.bench.report.result import Result

FOLDER: Final = BENCH.parent / "docs" / "pictures"
RESULT: Final = BENCH / "pictures" / "result.json"
FILES: Final = {LATENCY: "latency.svg", STAGES: "stages.svg"}
"""The file of each chart, by its title."""


class NoPicture(ValueError):
    """The result lacks what a picture is made of."""


def drawn(result: Result) -> dict[str, str]:
    """Return the text of each picture, by its file.

    Raises:
        NoPicture: the result has no figures for one.
    """
    found = {
        FILES[figure.title]: picture(figure) for figure in figures(result) if figure.title in FILES
    }
    if missing := [title for title, file in FILES.items() if file not in found]:
        raise NoPicture(f"it has no figures for: {', '.join(missing)}; were its runs void?")
    return found


def main() -> int:
    """Draw them; the exit status is 2 where the result cannot be drawn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("result", type=Path, nargs="?", default=RESULT, help="JSON of the bench")
    options = parser.parse_args()
    try:
        text = options.result.read_bytes()
        pictures = drawn(Result.from_json(text))
    except (OSError, ValueError) as error:
        print(f"{options.result}: {error}", file=sys.stderr)
        return 2
    FOLDER.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(json.loads(text), separators=(",", ":")) + "\n")
    for file, picture_text in pictures.items():
        (FOLDER / file).write_text(picture_text)
        print(f"wrote {(FOLDER / file).relative_to(BENCH.parent)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
