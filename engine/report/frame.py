"""The page of `ringbatch top`, as lines of text: what happened between two samples of an engine."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from textwrap import wrap
from typing import Final

from ringbatch.engine.report.sample import ModelSample, Sample, WorkerSample
from ringbatch.shm.tallies import BOUNDS_S

_NS: Final = 1e-9
_GAP: Final = "  "
_INDENT: Final = "    "
_SHORTEST_NAME: Final = 12
_LEAST_WIDTH: Final = 40


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the page; `heading` where it stands above others."""

    text: str
    heading: bool = False


def page(before: Sample | None, now: Sample, width: int, height: int | None = None) -> list[Line]:
    """What to show.

    Args:
        before: an earlier sample; None where there is none, so that no rates are known.
        now: the latest one.
        width: columns that there are.
        height: lines that there are; None for as many as it takes.
    """
    if before is not None and before.segment != now.segment:
        before = None
    width = max(width, _LEAST_WIDTH)
    models = _models(before, now)
    lines = [Line(_title(before, now), heading=True), Line("")]
    lines += _table(models, width)
    for model in now.models:
        details = _details(_model_before(before, model), model)
        lines += [Line(text) for text in wrap(details, width, subsequent_indent=_INDENT)]
    lines += [Line(""), *_table(_workers(before, now), width)]
    lines += [Line(""), Line(_listed(now.counts))]
    cut = [Line(_cut(line.text, width), line.heading) for line in lines]
    if height is None or len(cut) <= height:
        return cut
    left = len(cut) - height + 1
    more = f"... {left} more lines; a higher window or --once shows them"
    return [*cut[: height - 1], Line(_cut(more, width))]


def _title(before: Sample | None, now: Sample) -> str:
    answered = sum(_total(model.codes) for model in now.models)
    earlier = None if before is None else sum(_total(model.codes) for model in before.models)
    rate = _rate(answered, earlier, _passed_s(before, now))
    state = "starting"
    if now.stops:
        state = "stopping"
    elif now.ready_ns:
        state = f"ready for {_duration((now.at_ns - now.ready_ns) * _NS)}"
    return f"ringbatch: {now.engine}, process {now.pid}, {state}, {rate} requests/s"


def _models(before: Sample | None, now: Sample) -> list[list[str]]:
    rows = [
        ["MODEL", "REQ/S", "P50", "P99", "FLIGHT", "WAIT", "OLDEST", "EXPECT", "BATCH", "WORKERS"]
    ]
    passed_s = _passed_s(before, now)
    for model in now.models:
        earlier = _model_before(before, model)
        own = [worker for worker in now.workers if worker.model == model.title]
        ended_before = None if earlier is None else _total(earlier.codes)
        times = _since(model.times, earlier.times if earlier else None)
        rows.append(
            [
                model.title,
                _rate(_total(model.codes), ended_before, passed_s),
                percentile(times, 0.5),
                percentile(times, 0.99),
                f"{model.under_way.in_flight}",
                f"{model.under_way.waiting}",
                _time(model.under_way.oldest_s),
                _time(model.answer_ms / 1e3),
                _mean_batch(before, own),
                f"{model.ready}/{model.running}" + f"+{model.spares}" * bool(model.spares),
            ]
        )
    return rows


def _workers(before: Sample | None, now: Sample) -> list[list[str]]:
    rows = [["WORKER", "OF", "BATCH/S", "INST/S", "BUSY", "STATE"]]
    passed_s = _passed_s(before, now)
    for worker in now.workers:
        earlier = _worker_before(before, worker)
        busy = "-"
        if earlier is not None and passed_s:
            share = max(worker.run_ns - earlier.run_ns, 0) * _NS / passed_s
            busy = f"{min(share, 1):.0%}"
        rows.append(
            [
                f"{worker.number}",
                worker.model,
                _rate(worker.batches, None if earlier is None else earlier.batches, passed_s),
                _rate(worker.rows, None if earlier is None else earlier.rows, passed_s),
                busy,
                worker.state,
            ]
        )
    return rows


def _details(before: ModelSample | None, now: ModelSample) -> str:
    """Why batches were closed and how requests ended since the last sample; so far, where nothing
    happened since; empty where nothing ever did."""
    reasons, codes = now.reasons, {code: count for code, count in now.codes.items() if count}
    since = "so far "
    if before is not None:
        grown = _grown(now.reasons, before.reasons), _grown(now.codes, before.codes)
        if any(grown):
            since, (reasons, codes) = "", grown
    total = _total(reasons)
    closed = ", ".join(
        f"{reason} {count / total:.0%}"
        for reason, count in sorted(reasons.items(), key=lambda item: -item[1])
    )
    ended = ", ".join(f"{code}: {count}" for code, count in codes.items())
    odd = {"failed batches": now.failed, "run again": now.retried}
    parts = [
        f"{since}closed {closed}" if closed else "",
        f"{since}ended {ended}" if ended else "",
        _listed({name: count for name, count in odd.items() if count}),
    ]
    return f"{now.title}: {'; '.join(filter(None, parts))}" if any(parts) else ""


def percentile(times: Sequence[int], share: float) -> str:
    """Below which time so many of the requests were answered, by the edges of the buckets.

    Args:
        times: how many there were in each.
        share: of them.
    """
    total = sum(times)
    if not total:
        return "-"
    reached = accumulate(times)
    bucket = next(number for number, count in enumerate(reached) if count >= share * total)
    if bucket == len(BOUNDS_S):
        return f">{_time(BOUNDS_S[-1])}"
    return f"<{_time(BOUNDS_S[bucket])}"


def _mean_batch(before: Sample | None, workers: Iterable[WorkerSample]) -> str:
    batches = rows = 0
    for worker in workers:
        earlier = _worker_before(before, worker)
        batches += worker.batches - (earlier.batches if earlier else 0)
        rows += worker.rows - (earlier.rows if earlier else 0)
    return f"{rows / batches:.1f}" if batches > 0 else "-"


def _table(rows: Sequence[Sequence[str]], width: int) -> list[Line]:
    """Columns, closer together and the first of words cut where they do not fit; figures are
    right-aligned, words are not."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    words = [index for index in range(len(widths)) if not _is_figure(rows[-1][index])]
    gap, excess = _GAP, sum(widths) + len(_GAP) * (len(widths) - 1) - width
    if words and excess > max(widths[words[0]] - _SHORTEST_NAME, 0):
        gap, excess = " ", excess - (len(widths) - 1)
    for index in words[:1] if excess > 0 else []:
        widths[index] = min(widths[index], max(_SHORTEST_NAME, widths[index] - excess))
    lines = []
    for row in rows:
        cells = [
            f"{_cut(cell, w):<{w}}" if index in words else f"{cell:>{w}}"
            for index, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(Line(gap.join(cells).rstrip(), heading=row is rows[0]))
    return lines


def _is_figure(cell: str) -> bool:
    return cell[:1] in "0123456789<>-"


def _model_before(before: Sample | None, now: ModelSample) -> ModelSample | None:
    if before is None:
        return None
    return next((model for model in before.models if model.title == now.title), None)


def _worker_before(before: Sample | None, now: WorkerSample) -> WorkerSample | None:
    if before is None:
        return None
    found = (w for w in before.workers if (w.number, w.model) == (now.number, now.model))
    return next(found, None)


def _since(now: Sequence[int], before: Sequence[int] | None) -> list[int]:
    """What was counted since; all, where nothing is known of before."""
    if not before:
        return list(now)
    return [max(count - was, 0) for count, was in zip(now, before, strict=True)]


def _grown(now: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    grown = {name: count - before.get(name, 0) for name, count in now.items()}
    return {name: count for name, count in grown.items() if count > 0}


def _passed_s(before: Sample | None, now: Sample) -> float:
    return 0.0 if before is None else (now.at_ns - before.at_ns) * _NS


def _total(counts: Mapping[str, int]) -> int:
    return sum(counts.values())


def _rate(now: int, before: int | None, passed_s: float) -> str:
    if before is None or not passed_s:
        return "-"
    rate = max(now - before, 0) / passed_s
    return f"{rate:,.0f}" if rate >= 10 or not rate else f"{rate:.1f}"


def _time(seconds: float) -> str:
    if not seconds:
        return "0"
    for unit, factor in (("us", 1e6), ("ms", 1e3)):
        if round(seconds * factor) < 1000:
            found = seconds * factor
            return f"{found:.0f}{unit}" if found >= 10 else f"{found:.1f}{unit}"
    return f"{seconds:.0f}s" if seconds >= 10 else f"{seconds:.1f}s"


def _duration(seconds: float) -> str:
    minutes, hours = int(seconds) // 60, int(seconds) // 3600
    if hours >= 48:
        return f"{hours // 24} days"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min" if minutes >= 2 else f"{int(seconds)} s"


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}~"
