"""LoadGen's verdicts in words and rows, for both documents. Pure."""

from html import escape
from typing import Final

from ringbatch.bench.loadgen.judgement import Judgement, Run
from ringbatch.bench.loadgen.plan import Scenario
from ringbatch.bench.report.result import Result
from ringbatch.bench.report.words import number, table

TITLE: Final = "MLPerf's LoadGen as a judge"
HEADING: Final = (
    *("scenario", "asked/s", "verdict", "answered/s", "p50 ms", "p99 ms", "sender's lag ms", "why"),
)
_SERVER: Final = ("rate /s", "p50 ms", "p99 ms", "lag p99 ms")


def markdown(result: Result) -> list[str]:
    """Return a section; nothing if LoadGen did not run."""
    if result.loadgen is None:
        return []
    told = [text for sentence in sentences(result) for text in (sentence, "")]
    return ["", f"## {TITLE}", "", *told, *table(HEADING, rows(result.loadgen))]


def card(result: Result) -> str:
    """Return the same section, as HTML."""
    if result.loadgen is None:
        return ""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in HEADING)
    body = "".join(
        "<tr>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[:-1])
        + f'<td class="why">{escape(row[-1])}</td></tr>'
        for row in rows(result.loadgen)
    )
    told = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences(result))
    return (
        f'<div class="card scroll"><h2>{escape(TITLE)}</h2>{told}'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def sentences(result: Result) -> list[str]:
    """Return LoadGen's figures beside those of this command's generators, and the method."""
    judgement = result.loadgen
    assert judgement is not None
    return [
        f"{judgement.note} {_server(judgement, result.slo_ms)}{_beside(judgement, result)}"
        f"{_offline(judgement, result)}",
        _answers(judgement),
        _method(judgement),
    ]


def rows(judgement: Judgement) -> list[tuple[str, ...]]:
    """Return a row for each run."""
    return [_row(run) for run in judgement.runs]


def _row(run: Run) -> tuple[str, ...]:
    names = _SERVER if run.scenario is Scenario.SERVER else ("rate /s", "", "", "")
    figures = (number(run.figures.get(name)) for name in names)
    return (
        *(str(run.scenario), number(run.rate_per_s), run.verdict),
        *(*figures, "; ".join(run.why)),
    )


def _server(judgement: Judgement, slo_ms: float) -> str:
    limit = f"a p99 of {slo_ms:g} ms in the scenario Server"
    if not judgement.server_per_s:
        return f"No rate is VALID at {limit}: {judgement.why}."
    missed = judgement.missed_per_s
    above = f", {number(missed)} are not" if missed and not judgement.why else ""
    why = f"; {judgement.why}" if judgement.why else ""
    return f"{number(judgement.server_per_s)} queries/s are VALID at {limit}{above}{why}."


def _beside(judgement: Judgement, result: Result) -> str:
    if result.knee_per_s is None or not judgement.server_per_s:
        return ""
    share = judgement.server_per_s / result.knee_per_s
    return f" That is {share:.2f} of the knee above."


def _offline(judgement: Judgement, result: Result) -> str:
    found = judgement.offline_per_s
    if found is None:
        return " The scenario Offline has no VALID run."
    closed = result.closed.figures.get("rate /s")
    beside = f", {found / closed:.2f} of the closed loop" if closed else ""
    return f" All at once, in the scenario Offline, {number(found)} are answered/s{beside}."


def _answers(judgement: Judgement) -> str:
    found = [
        f"{one.scenario}: {one.answers} answers"
        + (", all of them right" if one.right else f", {one.wrong} wrong and {one.missing} missing")
        for one in judgement.compared
    ]
    return f"In accuracy mode, by LoadGen's log, {'; '.join(found)}."


def _method(judgement: Judgement) -> str:
    told = judgement.settings
    return (
        f"LoadGen {judgement.version}, with a shortest duration of "
        f"{told['min_duration_ms'] / 1e3:g} s and {told['min_query_count']} queries or more, far "
        f"below MLPerf's rules; one process sends, over up to {told['connections']} connections, "
        f"in Offline {told['offline_connections']}. LoadGen counts from when a query was due, so "
        "its times contain the sender's lag and LoadGen's own, which rests for up to 0.2 ms after "
        "each call. A query without the right answer counts as late. Runs above the limit are void "
        "where the sender was late itself."
    )
