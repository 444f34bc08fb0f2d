"""The result as a document in Markdown, for a terminal or a repository. Pure."""

from ringbatch.bench.report import words
from ringbatch.bench.report.result import Result


def markdown(result: Result) -> str:
    """Return the document."""
    lines = [f"# ringbatch bench: {result.model}", ""]
    lines += [f"**{warning}**\n" for warning in result.warnings]
    if sentence := words.headline(result):
        lines += [sentence, ""]
    lines += [words.host(result), "", words.method(result), ""]
    lines += words.table(words.heading(result), words.rows(result))
    if found := words.remarks(result):
        lines += ["", *(f"- {remark}" for remark in found)]
    return "\n".join([*lines, ""])
