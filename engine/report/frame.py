"""The page of `ringbatch top`, as lines of text: what happened between two samples of an engine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Final

from ringbatch.shm.snapshot.deltas import (
    bucket_deltas,
    bucket_of,
    bucket_upper_s,
    busy,
    class_deltas,
    counter_deltas,
    interval_s,
    mean_batch,
    rate,
    same_model,
    same_worker,
    total,
)
from ringbatch.shm.snapshot.sample import ModelSample, Sample
from ringbatch.shm.time_buckets import BOUNDS_S

_NS: Final = 1e-9
_GAP: Final = "  "
_INDENT: Final = "    "
_SHORTEST_NAME: Final = 12
_LEAST_WIDTH: Final = 40
_PHASES_SHOWN: Final = 2


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the page; `heading` if it stands above others."""

    text: str
    heading: bool = False


def page(before: Sample | None, now: Sample, width: int, height: int | None = None) -> list[Line]:
    """Return the lines of the screen.

    Args:
        before: an earlier sample; None if there is none, so that no rates are known.
        now: the latest one.
        width: columns that there are.
        height: lines that there are; None for no limit.
    """
    if before is not None and before.segment != now.segment:
        before = None
    width = max(width, _LEAST_WIDTH)
    models = _models(before, now)
    lines = [Line(_title(before, now), heading=True), Line("")]
    lines += _table(models, width)
    for model in now.models:
        details = _details(same_model(before, model), model)
        lines += [Line(text) for text in wrap(details, width, subsequent_indent=_INDENT)]
    classes = _classes(before, now)
    if len(classes) > 1:
        lines += [Line(""), *_table(classes, width)]
    lines += [Line(""), *_table(_workers(before, now), width)]
    if now.gpus:
        lines += [Line(""), *_table(_gpus(now), width)]
    lines += [Line(""), Line(_listed(now.counts))]
    lines += _slowest(now, width, None if height is None else height - len(lines))
    cut = [Line(_cut(line.text, width), line.heading) for line in lines]
    if height is None or len(cut) <= height:
        return cut
    left = len(cut) - height + 1
    more = f"... {left} more lines; a higher window or --once shows them"
    return [*cut[: height - 1], Line(_cut(more, width))]


def _title(before: Sample | None, now: Sample) -> str:
    answered = sum(total(model.codes) for model in now.models)
    earlier = None if before is None else sum(total(model.codes) for model in before.models)
    answers = _rate(rate(answered, earlier, interval_s(before, now)))
    state = "starting"
    if now.stops:
        state = "stopping"
    elif now.ready_ns:
        state = f"ready for {_duration((now.at_ns - now.ready_ns) * _NS)}"
    return f"ringbatch: {now.engine}, process {now.pid}, {state}, {answers} requests/s"


def _models(before: Sample | None, now: Sample) -> list[list[str]]:
    in_parts = any(model.in_parts for model in now.models)
    heads = ["FLIGHT", "WAIT", "OLDEST", "EXPECT", "BATCH", "WORKERS"]
    rows = [["MODEL", "REQ/S", *["PARTS/S"] * in_parts, "P50", "P99", *heads]]
    seconds = interval_s(before, now)
    for model in now.models:
        earlier = same_model(before, model)
        own = [worker for worker in now.workers if worker.model == model.title]
        ended_before = None if earlier is None else total(earlier.codes)
        times = bucket_deltas(model.times, earlier.times if earlier else None)
        parts = _rate(rate(model.parts, None if earlier is None else earlier.parts, seconds))
        rows.append(
            [
                model.title,
                _rate(rate(total(model.codes), ended_before, seconds)),
                *[parts if model.in_parts else "-"] * in_parts,
                percentile(times, 0.5),
                percentile(times, 0.99),
                f"{model.under_way.in_flight}",
                f"{model.under_way.waiting}",
                _time(model.under_way.oldest_s),
                _time(model.answer_ms / 1e3),
                _known(mean_batch(before, own), "{:.1f}"),
                _workers_of(model),
            ]
        )
    return rows


def _classes(before: Sample | None, now: Sample) -> list[list[str]]:
    """Return a row for each class of the models with requests of several classes."""
    rows = [["CLASS", "OF", "REQ/S", "QUEUE", "SHARE", "REFUSED/S"]]
    seconds = interval_s(before, now)
    for model in now.models:
        earlier = same_model(before, model)
        deltas = class_deltas(model.classes, earlier.classes if earlier else {})
        whole_ns = sum(own.run_ns for own in deltas.values())
        for name, own in deltas.items():
            rows.append(
                [
                    name,
                    model.title,
                    _rate(own.parts / seconds if earlier and seconds else None),
                    _time(own.wait_ns * _NS / own.parts) if own.parts else "-",
                    _known(own.run_ns / whole_ns if whole_ns else None, "{:.0%}"),
                    _rate(own.refused / seconds if earlier and seconds else None),
                ]
            )
    return rows


def _workers_of(model: ModelSample) -> str:
    if model.limits is None and not model.running:
        return "chain"
    found = f"{model.ready}/{model.running}" + f"+{model.spares}" * bool(model.spares)
    return found if model.limits is None else f"{found} of {model.limits[0]}-{model.limits[1]}"


def _workers(before: Sample | None, now: Sample) -> list[list[str]]:
    rows = [["WORKER", "OF", "BATCH/S", "INST/S", "BUSY", "STATE"]]
    seconds = interval_s(before, now)
    for worker in now.workers:
        earlier = same_worker(before, worker)
        rows.append(
            [
                f"{worker.number}",
                worker.model,
                _rate(rate(worker.batches, None if earlier is None else earlier.batches, seconds)),
                _rate(rate(worker.rows, None if earlier is None else earlier.rows, seconds)),
                _known(busy(earlier, worker, seconds), "{:.0%}"),
                worker.state,
            ]
        )
    return rows


def _gpus(now: Sample) -> list[list[str]]:
    rows = [["GPU", "OF", "BUSY", "MEMORY", "TEMP", "THROTTLED"]]
    for used in now.gpus:
        gpu = used.gpu
        memory = [_size(gpu.used_bytes), _size(gpu.total_bytes)]
        rows.append(
            [
                gpu.uuid,
                ", ".join(map(str, used.workers)),
                _known(gpu.busy, "{:.0%}"),
                "/".join(memory),
                _known(gpu.temperature_c, "{}C"),
                "-" if gpu.slowed is None else ", ".join(gpu.slowed) or "no",
            ]
        )
    return rows


def _size(found: int | None) -> str:
    return "-" if found is None else f"{found / (1 << 30):.1f}G"


def _slowest(now: Sample, width: int, room: int | None) -> list[Line]:
    """Return the slowest requests of the last minute, as many as there is room for."""
    rows = [["SLOWEST", "OF", "STATUS", "CAUSE", "WHERE", "REQUEST"]]
    for request in now.slowest:
        phases = sorted(request.phases.items(), key=lambda phase: -phase[1])[:_PHASES_SHOWN]
        where = ", ".join(f"{name} {_time(ns * _NS)}" for name, ns in phases)
        took, status = _time(request.took_ns * _NS), f"{request.status}"
        rows.append(
            [took, request.model or "none", status, request.cause, where, request.request_id]
        )
    if room is not None:
        rows = rows[: max(room - 1, 0)]
    return [Line(""), *_table(rows, width)] if len(rows) > 1 else []


def _details(before: ModelSample | None, now: ModelSample) -> str:
    """Return the reasons and outcomes since the last sample; all so far if nothing happened.

    It is empty if nothing ever did.
    """
    reasons, codes = now.reasons, {code: count for code, count in now.codes.items() if count}
    so_far = "so far "
    if before is not None:
        changes = (
            counter_deltas(now.reasons, before.reasons),
            counter_deltas(now.codes, before.codes),
        )
        if any(changes):
            so_far, (reasons, codes) = "", changes
    count_of_all = total(reasons)
    closed = ", ".join(
        f"{reason} {count / count_of_all:.0%}"
        for reason, count in sorted(reasons.items(), key=lambda item: -item[1])
    )
    ended = ", ".join(f"{code}: {count}" for code, count in codes.items())
    odd = {"failed batches": now.failed, "run again": now.retried}
    parts = [
        f"{so_far}closed {closed}" if closed else "",
        f"{so_far}ended {ended}" if ended else "",
        _listed({name: count for name, count in odd.items() if count}),
    ]
    return f"{now.title}: {'; '.join(filter(None, parts))}" if any(parts) else ""


def percentile(times: Sequence[int], share: float) -> str:
    """Return the time within which so many of the requests were answered, by edges of buckets.

    Args:
        times: how many there were in each.
        share: part of the requests, 0 to 1.
    """
    bucket = bucket_of(times, share)
    if bucket is None:
        return "-"
    edge_s = bucket_upper_s(bucket)
    return f">{_time(BOUNDS_S[-1])}" if edge_s is None else f"<{_time(edge_s)}"


def _table(rows: Sequence[Sequence[str]], width: int) -> list[Line]:
    """Return columns, closer together and the first of words cut if they do not fit.

    Figures are right-aligned, words are not.
    """
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


def _rate(found: float | None) -> str:
    if found is None:
        return "-"
    return f"{found:,.0f}" if found >= 10 or not found else f"{found:.1f}"


def _known(found: float | None, form: str) -> str:
    return "-" if found is None else form.format(found)


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
