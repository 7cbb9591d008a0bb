"""The pages of the documentation as commands with the output they show: read, compared, brought up to date.

What a page may say to its test, each in an HTML comment of one line right above a fence:

- `<!-- not run: REASON -->`: the block's commands cannot run here, and why.
- `<!-- exits: CODE -->`: the last command of the block ends with that code; all others end with 0.
- `<!-- picture: PATH -->`: `tools/picture.py` draws the block, with what it shows, into that file.
- `<!-- file: PATH -->`: the block is the content of that file of the project, for the commands after it.

A page whose first line is `<!-- starts in an empty folder -->` has no checkout around it: what it needs, it makes.

In a ```console block a line that begins with `$ ` is a command and what follows is what it prints; a line of `...` or `…`
is any number of lines, `…` within a line any text. A command without output after it may print anything. A ```sh or
```bash block is commands only. Blocks of other languages are shown, not run.

Why this is ours: sybil (10.1, tried 2026-11-22) finds fences and gives them to evaluators, of which it has Python's and
doctest's. It would stand for `blocks` alone, and less strictly: a fence that is never closed ends with its page, one
without language is passed over, and a block loses the lines and the indent by which outputs are written back. What takes
the lines here, it does not have: commands of a shell that stay in one process, output whose varying parts are named,
comments that are refused where they mean nothing, and bringing a page up to date.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

from tests.support.tools import REPOSITORY

RUN = frozenset({"console", "sh", "bash"})
SHOWN = frozenset({"yaml", "json", "python", "java", "jinja", "text"})
FORMS = ("not run", "exits", "file", "picture")
EMPTY = "<!-- starts in an empty folder -->"

_COMMENT = re.compile(r"\s*<!--\s*(?P<text>.*?)\s*-->\s*")
_FORM = re.compile(r"(?P<form>not run|exits|file|picture):\s*(?P<value>.*)")
_FENCE = re.compile(r"(?P<indent> *)```(?P<language>[^`]*)")
ANY_LINES = frozenset({"...", "…"})


class PageError(Exception):
    """A page that its test cannot read: names page, line and rule."""


@dataclass(frozen=True)
class Command:
    """A command of a page.

    Args:
        line: The page's line, from 1.
        text: What the shell gets; several lines if it goes on.
        shown: Lines of output that the page shows; none: the page says nothing of its output.
        start, end: The page's lines (from 0, end exclusive) that hold `shown`.
        exits: The exit code it ends with.
    """

    line: int
    text: str
    shown: tuple[str, ...] = ()
    start: int = 0
    end: int = 0
    exits: int = 0


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: its commands, or the file it is."""

    line: int
    language: str
    indent: str
    body: tuple[str, ...]
    notes: dict[str, str]

    @property
    def reason(self) -> str:
        """Why it is not run; empty if it is."""
        return self.notes.get("not run", "")


def all_pages() -> list[Path]:
    """Every page whose blocks are held by the test."""
    found = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
    return [*found, REPOSITORY / "bench/README.md", *sorted((REPOSITORY / "examples").glob("*/README.md"))]


def starts_empty(text: str) -> bool:
    """Whether the page's commands are typed in an empty folder, and not in a copy of the checkout."""
    return text.partition("\n")[0].strip() == EMPTY


def blocks(text: str, name: str) -> list[Block]:
    """The fenced blocks of a page, in order.

    Raises:
        PageError: A fence without language or of an unknown one, an unknown or misplaced comment, an empty reason.
    """
    lines = text.splitlines()
    found: list[Block] = []
    place = 0
    while place < len(lines):
        opened = _FENCE.fullmatch(lines[place])
        if opened is None:
            _misplaced(lines, place, name)
            place += 1
            continue
        close = opened["indent"] + "```"
        end = next((at for at in range(place + 1, len(lines)) if lines[at].rstrip() == close), None)
        if end is None:
            raise PageError(f"{name}:{place + 1}: the fence is never closed")
        indent = len(opened["indent"])
        body = tuple(line[indent:] for line in lines[place + 1 : end])
        found.append(_block(place, opened, body, _notes(lines, place, name), name))
        place = end + 1
    return found


def _block(place: int, opened: re.Match[str], body: tuple[str, ...], notes: dict[str, str], name: str) -> Block:
    where, language = f"{name}:{place + 1}", opened["language"].strip()
    if language not in RUN | SHOWN:
        raise PageError(
            f"{where}: a fence has one of these languages: {', '.join(sorted(RUN | SHOWN))}; not {language!r}"
        )
    if "file" in notes and (language in RUN or len(notes) > 1):
        raise PageError(f"{where}: `file:` goes with a block that is not run")
    if language not in RUN and set(notes) & {"not run", "exits", "picture"}:
        raise PageError(f"{where}: a {language} block is never run")
    return Block(place + 1, language, opened["indent"], body, notes)


def _notes(lines: Sequence[str], place: int, name: str) -> dict[str, str]:
    """The comments right above a fence: form to value."""
    notes: dict[str, str] = {}
    while place > 0 and (comment := _COMMENT.fullmatch(lines[place - 1])):
        form = _FORM.fullmatch(comment["text"])
        if form is None:
            raise PageError(f"{name}:{place}: a comment above a fence has one of the forms {', '.join(FORMS)}: …")
        if not form["value"].strip():
            raise PageError(f"{name}:{place}: `{form['form']}:` says nothing")
        if form["form"] == "exits" and not form["value"].isdecimal():
            raise PageError(f"{name}:{place}: `exits:` takes an exit code, not {form['value']!r}")
        notes[form["form"]] = form["value"].strip()
        place -= 1
    return notes


def _misplaced(lines: Sequence[str], place: int, name: str) -> None:
    """Refuses a comment that is about a fence, or about the page, and is in another place."""
    if lines[place].strip() == EMPTY and place > 0:
        raise PageError(f"{name}:{place + 1}: this comment is the first line of a page, or it is not there")
    comment = _COMMENT.fullmatch(lines[place])
    if comment is None or _FORM.fullmatch(comment["text"]) is None:
        return
    below = next((line for line in lines[place + 1 :] if _COMMENT.fullmatch(line) is None), "")
    if _FENCE.fullmatch(below) is None:
        raise PageError(f"{name}:{place + 1}: this comment is not right above a fence")


def commands(block: Block, name: str) -> list[Command]:
    """The commands of a block that is run, with the output shown after each.

    Raises:
        PageError: A console block begins with output, or a command never ends.
    """
    found = list(_console(block, name) if block.language == "console" else _script(block, name))
    if found and "exits" in block.notes:
        last = found[-1]
        found[-1] = Command(last.line, last.text, last.shown, last.start, last.end, int(block.notes["exits"]))
    return found


def _console(block: Block, name: str) -> Iterator[Command]:
    body, place = block.body, 0
    while place < len(body):
        if not body[place].startswith("$ "):
            raise PageError(f"{name}:{block.line + 1 + place}: a console block begins with a command, `$ …`")
        first = place
        words = [body[place][2:]]
        place += 1
        while not _whole("\n".join(words)):
            if place == len(body):
                raise PageError(f"{name}:{block.line + 1 + first}: the command never ends")
            words.append(body[place])
            place += 1
        start = place
        while place < len(body) and not body[place].startswith("$ "):
            place += 1
        yield Command(
            block.line + 1 + first, "\n".join(words), body[start:place], block.line + start, block.line + place
        )


def _script(block: Block, name: str) -> Iterator[Command]:
    words: list[str] = []
    for place, line in enumerate(block.body):
        words.append(line)
        text = "\n".join(words)
        if _whole(text):
            if text.strip() and not all(word.lstrip().startswith("#") for word in words):
                yield Command(block.line + 2 + place - len(words), text)
            words = []
    if words:
        raise PageError(f"{name}:{block.line}: the last command never ends")


def _whole(text: str) -> bool:
    """Whether bash would run this now, or wait for another line."""
    if text.endswith("\\"):
        return False
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, timeout=60)
    return "unexpected end of file" not in done.stderr and "unexpected EOF" not in done.stderr and "here-document" not in done.stderr  # fmt: skip


# What differs between two runs of the same command: each pattern names one kind of value.
_NUMBER = r"-?\d+(?:\.\d+)?(?:e-?\d+)?"
VARYING: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        # times and dates with a time, a time of day, a Unix time with microseconds
        (r"\b\d{4}-\d\d-\d\d[T -]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z\b| ?[+-]\d\d:?\d\d\b)?", "<time>"),
        (r"\b\d\d:\d\d:\d\d(?:\.\d+)?\b", "<time>"),
        # durations that were measured: with a decimal point, or in a row named seconds; an age in days
        (r"\b\d+\.\d+ ?s\b(?: \(\d+:\d\d:\d\d\))?", "<duration>"),  # pytest adds hours and minutes from 60 s on
        (r"^(seconds +)\d+(?:\.\d+)?$", r"\1<duration>"),
        (r'("seconds": )\d+(?:\.\d+)?', r"\1<duration>"),
        (r"\b\d+ days ago\b", "<n> days ago"),
        (r"\b\d+ images/s", "<n> images/s"),
        # ids of jobs, studies and projects on the local Vertex; ids of processes; ports
        (r"\b\d{18,19}\b", "<id>"),
        (r"(?<=projects/)\d+(?=/)", "<number>"),
        (r"\bprocess \d+", "process <id>"),
        (r"\b(127\.0\.0\.1|localhost):\d+", r"\1:<port>"),
        # a run's name; the hash in a package's or image's name; hashes of weights
        (r"\b\d{8}-\d{6}-[0-9a-f]{4}\b", "<run>"),
        (r"\+[0-9a-f]{12}(?=\.tar\.gz|\b)", "+<hash>"),
        (r"\b(trainer-(?:cpu|gpu|tpu)):[0-9a-f]{12}\b", r"\1:<hash>"),
        (r"\bsha256 [0-9a-f]+", "sha256 <hash>"),
        # the claim that a job of the trigger carries
        (r"\b[0-9a-f]{32}-[0-9a-f]{12}\b", "<claim>"),
        # what stands in for an image: this machine's Python, and TensorFlow with or without GPU code
        (r"\bPython 3\.\d+\.\d+ (?=instead of\b)", "Python <version> "),
        (r"\bPython 3\.\d+\.\d+ of\b", "Python <version> of"),
        (r"\b(tensorflow|tf-keras) \d+\.\d+\.\d+(?:\+cpu)?", r"\1 <version>"),
        # a file or folder under the system's folder for temporary files
        (r"/tmp/[\w.-]+", "/tmp/<name>"),
        # lines and imports of the tool's code, which every commit changes
        (r"^(modules +|lines +| {2}[a-z][a-z_ ]+? {6,})[\d,]{3,}(?:, with \d+ imports)?\b", r"\1<n>"),
        # numbers of training
        (rf'\b((?:val_)?(?:loss|accuracy)"?(?: of epoch \d+)?[ =:]+){_NUMBER}', r"\1<n>"),
    )
)
_TRIAL = re.compile(r"^(?:\S+: trial \d+ [A-Z]+:|\s*\d+ +[A-Z_]+ +\S|best trial ).*$|^\s*\d+(?: {2,}\d[\d.e-]*){2,}$")
"""A line about one trial: which values it tried, what it reached, which was best, all differ between runs."""


def normal(line: str) -> str:
    """A line of output with all that may differ between runs replaced by its kind, and columns without their width."""
    if _TRIAL.match(line):
        line = re.sub(r"\s+best$", "", re.sub(rf"(?<![\w.]){_NUMBER}\b", "<n>", line))
        line = re.sub(r"=\w+", "=<v>", re.sub(r"(?<=  )[a-z]\w*(?=  )", "<v>", line)).replace("=<n>", "=<v>")
    for pattern, replacement in VARYING:
        line = pattern.sub(replacement, line)
    line = re.sub(r"([-─])\1{2,}", r"\1\1\1", line)
    return re.sub(r"(?<=\S) {2,}", "  ", line).strip()


def same_line(shown: str, real: str) -> bool:
    """Whether a shown line agrees with a real one; `…` in it is any text."""
    if normal(shown) == normal(real):
        return True
    if "…" not in shown:
        return False
    parts = [re.escape(normal(part)) if part.strip() else "" for part in normal(shown).split("…")]
    return re.fullmatch(r"\s*.*?\s*".join(parts), normal(real)) is not None


def same(shown: Sequence[str], real: Sequence[str]) -> bool:
    """Whether the shown output is the real one, its ellipses covering any lines."""
    if not shown:
        return True
    real = _trimmed(real)
    ends = {0}  # how many of the real lines the shown ones up to here may stand for
    for line in _trimmed(shown):
        if line.strip() in ANY_LINES:
            ends = set(range(min(ends, default=len(real) + 1), len(real) + 1))
        else:
            ends = {end + 1 for end in ends if end < len(real) and same_line(line, real[end])}
    return len(real) in ends


def updated(shown: Sequence[str], real: Sequence[str]) -> list[str]:
    """The shown output brought up to date: ellipses and lines that still hold are kept, the others are the real ones.

    Beside an ellipsis as many lines as were shown there are the real ones, and it covers what is between.
    """
    if same(shown, real):
        return list(shown)
    shown, real = _trimmed(shown), _trimmed(real)
    mine = [normal(line) for line in shown]
    theirs = [
        next((one for one, line in zip(mine, shown, strict=True) if same_line(line, new)), normal(new)) for new in real
    ]
    lines: list[str] = []
    for kind, start, end, first, last in SequenceMatcher(None, mine, theirs, autojunk=False).get_opcodes():
        wild = [place for place in range(start, end) if shown[place].strip() in ANY_LINES]
        if kind == "equal":
            lines += shown[start:end]
        elif wild:
            before = min(first + wild[0] - start, last)
            after = max(last - (end - 1 - wild[-1]), before)
            lines += [*real[first:before], shown[wild[0]], *real[after:last]]
        else:
            lines += real[first:last]
    return [_printable(line.rstrip()) for line in lines]


def _printable(line: str) -> str:
    """A line of output that neither begins a command on the page nor ends its block."""
    return f" {line}" if line.startswith(("$ ", "```")) else line


def _trimmed(lines: Sequence[str]) -> list[str]:
    """Without empty lines at its ends."""
    return "\n".join(line.rstrip() for line in lines).strip("\n").split("\n")


def rewritten(text: str, outputs: Iterable[tuple[Command, str, Sequence[str]]]) -> str:
    """A page with the shown outputs of its commands replaced.

    Args:
        text: The page.
        outputs: Each command with the indent of its block and its new output.
    """
    lines = text.splitlines()
    for command, indent, output in sorted(outputs, key=lambda one: one[0].start, reverse=True):
        lines[command.start : command.end] = [(indent + line).rstrip() for line in output]
    return "\n".join(lines) + "\n"
