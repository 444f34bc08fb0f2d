"""Logs of LoadGen, as values. Pure."""

import re
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

_MARK: Final = ":::MLLOG "
_CONDITIONS: Final = {
    "result_perf_constraints_met": "99 of 100 answers within the limit",
    "result_min_duration_met": "its shortest duration",
    "result_min_queries_met": "its fewest queries",
    "early_stopping_met": "enough queries to be sure of the p99",
}
_PERCENTILE: Final = re.compile(r"result_(\d+\.\d+)_percentile_latency_ns")
_RATES: Final = ("result_completed_samples_per_sec", "result_samples_per_second")


class BadLog(ValueError):
    """Log of LoadGen that cannot be read; the message says why."""


@dataclass(frozen=True)
class Said:
    """Figures of LoadGen for a run.

    Attributes:
        version: of LoadGen.
        valid: True if it calls the run VALID; None if it does not say, as of a run in which answers
            are compared.
        why: the missed conditions, in words, and its errors.
        figures: by name, whose last word is the unit; of times, p50 to p99.9 and the mean.
        queries: that it issued.
    """

    version: str
    valid: bool | None
    why: tuple[str, ...] = ()
    figures: dict[str, float] = field(default_factory=dict)
    queries: int = 0


@dataclass(frozen=True)
class Logged:
    """An answer in LoadGen's log.

    Attributes:
        sample: which of the library was asked for.
        data: what was answered.
    """

    sample: int
    data: bytes


def said(detail: str) -> Said:
    """Return the figures in mlperf_log_detail.txt.

    Raises:
        BadLog: it is cut off, or nothing of the kind.
    """
    values: dict[str, Any] = {}
    errors = []
    for line in detail.splitlines():
        if not line.startswith(_MARK):
            continue
        try:
            entry = orjson.loads(line[len(_MARK) :])
            key, value = entry["key"], entry["value"]
            is_error = entry["metadata"]["is_error"]
        except (ValueError, KeyError, TypeError):
            raise BadLog(f"a line of LoadGen's log that cannot be read: {line[:80]}") from None
        values[key] = value
        if is_error:
            errors.append(" ".join(str(value).split()))
    if "loadgen_version" not in values:
        raise BadLog("LoadGen's log does not begin as such a log does")
    validity = values.get("result_validity")
    missed = [f"missed: {words}" for key, words in _CONDITIONS.items() if values.get(key) is False]
    return Said(
        version=str(values["loadgen_version"]).partition(" ")[0],
        valid=None if validity is None else validity == "VALID",
        why=(*missed, *dict.fromkeys(errors)),
        figures=_figures(values),
        queries=int(values.get("result_query_count", 0)),
    )


def _figures(values: dict[str, Any]) -> dict[str, float]:
    found = {}
    if rates := [values[key] for key in _RATES if key in values]:
        found["rate /s"] = float(rates[0])
    if "result_mean_latency_ns" in values:
        found["mean ms"] = values["result_mean_latency_ns"] / 1e6
    for key, value in values.items():
        if (match := _PERCENTILE.fullmatch(key)) is not None:
            found[f"p{float(match[1]):g} ms"] = value / 1e6
    return found


def logged(accuracy: bytes) -> list[Logged]:
    """Return the answers in mlperf_log_accuracy.json.

    Raises:
        BadLog: it is cut off, or nothing of the kind.
    """
    try:
        return [
            Logged(int(entry["qsl_idx"]), bytes.fromhex(entry["data"]))
            for entry in orjson.loads(accuracy)
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise BadLog(f"LoadGen's log of answers cannot be read: {error!r}") from None
