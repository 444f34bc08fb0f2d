"""Rules of plain English: first words, the length of sentences, and names. Pure."""

import ast
import inspect
import re
from collections.abc import Iterator
from typing import Final

MOST_WORDS: Final = 30
OPENER: Final = re.compile(r"What(ever)?|Who(m|se|ever)?|Whether|Where(ver)?|How|Which(ever)?|That")
DOCSTRING_OPENER: Final = re.compile(rf"{OPENER.pattern}|Of|Those|When")
"""The last three leave a docstring's noun to the code around it: "Of the table." """

NAMELESS: Final = re.compile(
    r"(?:^|_)(?:what|whatever|who|whoever|whom|told|(?:is|are|was|were|be|been)_said)(?:_|$)"
    r"|^_?(?:test_)?whose(?:_|$)"
)
"""Words of a name in snake case that stand where a noun could: "test_who_waits" for "client"."""

# A list's item and an argument's description stand for a paragraph each.
_PARAGRAPH_END: Final = re.compile(r"\n\s*\n|\n(?=\s*[-*] |\s+[\w*, .]+: )")
_TABLE: Final = re.compile(r"\A    |----")
_SENTENCE_END: Final = re.compile(r"(?<=[.;:!?])[)\"'*]*\s+")
_LIST_MARK: Final = re.compile(r"^\s*(?:[-*]|\d+\.)\s+")
# The text of a link is a title, which may open as it likes.
_LINK: Final = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)
_FENCED: Final = re.compile(r"^( *)```.*?^\1```", re.DOTALL | re.MULTILINE)
_FRONT_MATTER: Final = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)


def docstring_faults(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the fault of each docstring that breaks a rule, attributes' included."""
    for line, text in docstrings(tree):
        if DOCSTRING_OPENER.fullmatch(word := first_word(text)):
            yield line, f'a docstring opens with "{word}"'
        for paragraph in _PARAGRAPH_END.split(text):
            if not _TABLE.search(paragraph):
                yield from ((line, fault) for fault in long_sentences(paragraph))


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each docstring: of modules, classes, functions, attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))) if text.strip():
                yield node.lineno, inspect.cleandoc(text)


def name_faults(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the fault of each name that lacks its noun.

    Names are those of functions, classes, arguments and variables, and ids of a test's cases.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt | ast.expr | ast.arg | ast.keyword):
            for name in names_in(node):
                words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|\W+", "_", name).lower()
                if NAMELESS.search(words):
                    yield node.lineno, f'the name "{name}" lacks a noun'


def names_in(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node gives to something."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.arg(arg=name):
            yield name
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            yield name
        case ast.keyword(arg="id", value=ast.Constant(value=str(name))):
            yield name
        case ast.keyword(arg="ids", value=ast.List(elts=names)):
            yield from (ast.unparse(one) for one in names if isinstance(one, ast.Constant))


def document_faults(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the fault of each paragraph and list item of Markdown that breaks a rule.

    Code, tables, headings and comments are no prose. A question may open with a question's word.
    """
    for line, paragraph in paragraphs(text):
        for sentence in sentences(paragraph):
            if OPENER.fullmatch(word := first_word(sentence)) and not sentence.endswith("?"):
                yield line, f'a sentence opens with "{word}"'
        yield from ((line, fault) for fault in long_sentences(paragraph))


def paragraphs(markdown: str) -> Iterator[tuple[int, str]]:
    """Yield each paragraph and list item of a document, with the number of its first line."""
    blank = "\n".join
    for kind in (_FRONT_MATTER, _FENCED, _COMMENT):
        markdown = kind.sub(lambda found: blank([""] * (found[0].count("\n") + 1)), markdown)
    begun, lines = 0, list[str]()
    for number, line in enumerate([*markdown.splitlines(), ""], start=1):
        is_other = not line.strip() or line.lstrip().startswith(("|", "#", "<", "!!!", "???"))
        if (is_other or _LIST_MARK.match(line)) and lines:
            yield begun, _LINK.sub(r"@\1", " ".join(lines))
            lines = []
        if not is_other:
            begun = begun if lines else number
            lines.append(_LIST_MARK.sub("", line, count=1).strip())


def sentences(paragraph: str) -> list[str]:
    """Return the sentences of a paragraph; a colon or a semicolon ends one too."""
    return [part for part in _SENTENCE_END.split(" ".join(paragraph.split())) if part]


def long_sentences(paragraph: str) -> Iterator[str]:
    """Yield a fault for each sentence that is too long."""
    for sentence in sentences(paragraph):
        if (count := len(sentence.split())) > MOST_WORDS:
            yield f'a sentence of {count} words: "{sentence[:60]}..."'


def first_word(text: str) -> str:
    """Return the word that a text opens with, without marks around it."""
    return text.split(maxsplit=1)[0].strip("*_`\"'(,.:;") if text.strip() else ""
