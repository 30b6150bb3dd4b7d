"""A page of the documentation as its reader follows it: what it has one type, and what
it says one will see.

Blocks between fences are taken in their order. In a `console` block a line after a
prompt (`$ `, `clinic$ `) is a command, and the lines below it are what it prints. What
chance, time or the machine decide may differ, nothing else.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROMPT = re.compile(r"^([a-z]*)\$ (.*)$")
MAY_DIFFER = {
    "any": "…",
    "rule": "─+",
    "day": r"\d{4}-\d\d-\d\d",
    "clock": r"\d\d:\d\d(?::\d\d)?",
    "keys": "(?:[0-9a-f]{4}-){2,}(?:[0-9a-f]{4})?",
    "digest": r"(?<![\w.])(?=[a-f]*\d)[0-9a-f]{8,64}(?!\w|\.\d)",
    "number": r"\d+(?:,\d{3})*(?:\.\d+)?(?:e-?\d+)?",
}
PIECES = re.compile(
    "|".join(f"(?P<{name}>{text})" for name, text in MAY_DIFFER.items())
)
LAX = MAY_DIFFER | {
    "any": ".*?",
    "digest": "[0-9a-f]+",
    "number": f"({MAY_DIFFER['number']})",
}


@dataclass(frozen=True)
class Block:
    """What stands between two fences, and the heading that it stands under."""

    kind: str
    text: str
    heading: str
    section: str


@dataclass(frozen=True)
class Step:
    """A command, whose terminal it is typed at, and what is shown below it; no command:
    what is shown alone.
    """

    who: str
    command: str
    shown: str


def blocks(page: str, section: str | None = None) -> list[Block]:
    """The blocks of a page below docs/, or those of one section of it: what stands
    under one heading of the second level ("": what stands before the first).
    """
    found = []
    kind = ""
    body = ""
    heading = ""
    under = ""
    for line in (ROOT / "docs" / page).read_text().splitlines(keepends=True):
        if line.startswith("```"):
            found += [Block(kind, body, heading, under)] if kind else []
            kind = "" if kind else line[3:].strip() or "text"
            body = ""
        elif kind:
            body += line
        elif line.startswith("#"):
            heading = line.strip("# \n")
            under = heading if line.startswith("## ") else under
    return [block for block in found if section in (None, block.section)]


def steps(text: str) -> Iterator[Step]:
    """What a console block has one type, in its order."""
    who = command = ""
    shown: list[str] = []
    for line in text.replace("\\\n", " ").splitlines():
        match = PROMPT.match(line)
        if match:
            if command or shown:
                yield Step(who, command, "\n".join(shown))
            (who, command), shown = match.groups(), []
            command = command.split(" # ")[0].strip()
        else:
            shown.append(line)
    yield Step(who, command, "\n".join(shown))


def differs(shown: str, printed: str) -> str | None:
    """What is shown and was not printed: None, or where they part.

    Words are the same and in the same order, how wide columns are aside; a figure of ε
    or δ is within 1 %, any other number within a quarter or 0.11, and `…` stands for
    anything. What is printed before and after is not shown.
    """
    words = " ".join(line for line in shown.splitlines() if not _of_a_row(line)).split()
    for length in range(len(words), 0, -1):
        found = re.search(_pattern(words[:length]), printed, re.DOTALL)
        if found is None:
            continue
        if length < len(words):
            return (
                f"{' '.join(words[:length][-8:])!r} is not followed by "
                f"{words[length]!r}"
            )
        return _unlike(" ".join(words), found)
    return f"{words[0]!r} is not there" if words else None


def _of_a_row(line: str) -> bool:
    """Whether a line is a drawn row, as a CSV file has it: another one every time."""
    return len(line.split(",")) > 3 and " " not in line and bool(re.search(r"\d", line))


def _pattern(words: list[str]) -> str:
    made = []
    for word in words:
        at = 0
        text = ""
        for piece in PIECES.finditer(word):
            text += re.escape(word[at : piece.start()]) + LAX[str(piece.lastgroup)]
            at = piece.end()
        made.append(text + re.escape(word[at:]))
    return r"\s+".join(made).replace(r"\s+.*?\s+", r"\s+(?:.*?\s)??")


def _unlike(shown: str, found: re.Match[str]) -> str | None:
    """The first number that is too far from the one that is shown."""
    said = [piece for piece in PIECES.finditer(shown) if piece.lastgroup == "number"]
    for piece, other in zip(said, found.groups(), strict=True):
        one, two = (float(text.replace(",", "")) for text in (piece[0], other))
        price = re.search(r"[εδ]\s?=\s?$", shown[: piece.start()])
        if abs(one - two) > (0.01 * one if price else max(0.11, 0.25 * one)):
            return f"{shown[max(0, piece.start() - 40) : piece.end()]!r} is now {other}"
    return None
