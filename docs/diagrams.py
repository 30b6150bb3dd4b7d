"""Draw docs/architecture.svg and docs/gram_run.svg, the pictures of design.md.

    make diagrams

They are plain SVG, so that they are seen without a network and in any viewer, and
follow the reader's light or dark theme. `tests/test_diagrams.py` compares the steps of
a Gram run with what a run asks.
"""

from collections.abc import Iterable
from pathlib import Path

from markupsafe import Markup

from understudy.report.plots import element

FOLDER = Path(__file__).parent
STYLE = """
svg { color-scheme: light dark; --card: #fff; --ink: #1d1f23; --soft: #5b6068; --rule: #d3d0c8; --box: #f4f3ef;
  --paid: #c8590a; --free: #0f7b6c; }
@media (prefers-color-scheme: dark) { svg { --card: #1b1e23; --ink: #e9e7e2; --soft: #a0a6af; --rule: #454b54;
  --box: #262a31; --paid: #f08a3c; --free: #3fbfa9; } }
text { font: 13px system-ui, sans-serif; fill: var(--ink); text-anchor: middle;
  stroke: var(--card); stroke-width: 4px; paint-order: stroke; stroke-linejoin: round; }
text.in { stroke: none; } .soft { fill: var(--soft); font-size: 12px; } .name { font-weight: 600; }
.paid-text { fill: var(--paid); font-weight: 600; font-size: 12px; }
.card { fill: var(--card); stroke: var(--rule); } .box { fill: var(--box); stroke: var(--rule); }
.paid { fill: var(--card); stroke: var(--paid); stroke-width: 2; }
.free { fill: var(--card); stroke: var(--free); stroke-width: 2; }
.life { stroke: var(--rule); } .ask, .answer { stroke: var(--ink); stroke-width: 1.4; }
.answer { stroke-dasharray: 5 4; } .head { fill: var(--ink); }
"""

WIDTH = 860
# where the lifelines are
CLINIC = 110
SERVER = 430
INSURER = 750
# the ask, what it says, what is answered, what the ledger has before the answer leaves
STEPS = (
    (
        "alignment.introduce",
        "which kind of ids, and how many?",
        "kind and number",
        "entry, outside ε",
    ),
    (
        "alignment.mask-own",
        "mask your ids",
        "ids, masked by a key of its own",
        "entry, outside ε",
    ),
    (
        "alignment.mask-other",
        "mask the other's, too",
        "ids, masked twice",
        "entry, outside ε",
    ),
    ("alignment.found", "the places of the people whom both hold", "done", ""),
    (
        "joint.begin",
        "all schemas, the settings",
        "budget, noise that it needs, public key",
        "",
    ),
    (
        "joint.agree",
        "all keys, the noise",
        "a handshake with the other, sealed",
        "",
    ),
    (
        "joint.release",
        "the other's handshake",
        "fine tables of its columns, under noise",
        "ε is charged",
    ),
    (
        "joint.propose",
        "levels, chosen by the fine tables",
        "what it was told, sealed",
        "",
    ),
    (
        "joint.swap",
        "what the other was told; the next people",
        "rows for it, encrypted and sealed, or none",
        "entry, outside ε",
    ),
    (
        "joint.swap",
        "the other's rows, encrypted",
        "sums of them, masked and under noise",
        "ε is charged",
    ),
    (
        "joint.release",
        "sums of its encrypted rows",
        "shares of all pairs, under noise",
        "ε is charged",
    ),
    ("run.settle", "what has it cost?", "the ledger's figure", ""),
)


def gram_run() -> str:
    """Two holders of columns, whose levels are bought: from top to bottom, what is
    asked and answered.
    """
    top = 60
    step = 78
    bottom = top + step * len(STEPS) + 10
    parts: list[Markup] = []
    for x, name in ((CLINIC, "clinic"), (SERVER, "server"), (INSURER, "insurer")):
        parts += [
            element("line", class_="life", x1=x, x2=x, y1=46, y2=bottom),
            *_box(x, 30, 120, 32, name),
        ]
    for number, (ask, said, answer, entry) in enumerate(STEPS):
        y = top + step * number + 24
        parts += [
            _text(SERVER, y - 7, f"{ask}: {said}"),
            _text(SERVER, y + 27, answer, "soft"),
        ]
        for x in (CLINIC, INSURER):
            parts += [
                *_arrow(SERVER, x, y, "ask"),
                *_arrow(x, SERVER, y + 34, "answer"),
            ]
            if entry:
                kind = "paid" if "charged" in entry else "box"
                parts += _box(x, y + 17, 166, 22, f"ledger: {entry}", kind)
    ends = "adds the shares up and fits a generator: from here on nothing costs more"
    parts += _box(SERVER, bottom + 16, 520, 32, ends, "free")
    return _svg(
        "Messages of a Gram run between a server and two holders", bottom + 46, parts
    )


def architecture() -> str:
    """What runs where, and what crosses the line between."""
    parts: list[Markup] = []
    for x, name in ((CLINIC + 20, "clinic"), (INSURER - 20, "insurer")):
        parts += [
            element("rect", class_="card", x=x - 115, y=20, width=230, height=246, rx=8)
        ]
        parts += [_text(x, 44, f"Holder: {name}", "name in")]
        parts += _box(x, 78, 200, 34, "rows, a public schema")
        parts += _box(x, 146, 200, 34, "party: answers, adds noise")
        parts += _box(x, 226, 200, 34, "ledger: first the price", "paid")
        parts += [
            *_down(x, 95, 129),
            *_down(x, 163, 209),
            _text(x, 190, "before anything leaves", "soft"),
        ]
    parts += [
        element(
            "rect", class_="card", x=SERVER - 110, y=20, width=220, height=246, rx=8
        )
    ]
    parts += [_text(SERVER, 44, "Server, trusted with no row", "name in")]
    parts += _box(SERVER, 78, 200, 34, "run file: what is wanted")
    parts += _box(SERVER, 146, 200, 34, "train: asks and combines")
    parts += _box(SERVER, 226, 200, 34, "generator, card, statement", "free")
    parts += [*_down(SERVER, 95, 129), *_down(SERVER, 163, 209)]
    for party, edge in ((CLINIC + 120, SERVER - 100), (INSURER - 120, SERVER + 100)):
        parts += [*_arrow(edge, party, 138, "ask"), *_arrow(party, edge, 154, "answer")]
    parts += [
        *_down(SERVER, 243, 322),
        _text(
            SERVER,
            292,
            "Solid: asks. Dashed: answers, in which everything is public or paid for.",
            "soft",
        ),
        *_box(
            SERVER,
            340,
            560,
            34,
            "anybody: synthetic rows, answers to questions, classifiers, the exchange",
            "free",
        ),
    ]
    return _svg(
        "Holders with rows and ledgers, a server that asks, and what is published",
        372,
        parts,
    )


def _text(x: float, y: float, said: str, kind: str = "") -> Markup:
    return element("text", said, x=x, y=y, class_=kind)


def _box(
    x: float, y: float, width: float, height: float, said: str, kind: str = "box"
) -> Iterable[Markup]:
    words = (
        "paid-text in"
        if kind == "paid" and height < 30
        else "soft in"
        if height < 30
        else "in"
    )
    place = {
        "x": x - width / 2,
        "y": y - height / 2,
        "width": width,
        "height": height,
        "rx": 6,
    }
    return element("rect", class_=kind, **place), _text(x, y + 4.5, said, words)


def _arrow(start: float, end: float, y: float, kind: str) -> Iterable[Markup]:
    back = -8 if end > start else 8
    points = f"{end},{y} {end + back},{y - 4} {end + back},{y + 4}"
    return element("line", class_=kind, x1=start, x2=end, y1=y, y2=y), element(
        "polygon", class_="head", points=points
    )


def _down(x: float, start: float, end: float) -> Iterable[Markup]:
    points = f"{x},{end} {x - 4},{end - 8} {x + 4},{end - 8}"
    return element("line", class_="ask", x1=x, x2=x, y1=start, y2=end), element(
        "polygon", class_="head", points=points
    )


def _svg(label: str, height: float, parts: Iterable[Markup]) -> str:
    card = element(
        "rect", class_="card", x=0.5, y=0.5, width=WIDTH - 1, height=height - 1, rx=8
    )
    size = {"viewBox": f"0 0 {WIDTH} {height}", "width": WIDTH, "height": height}
    named = {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "aria_label": label}
    return (
        str(
            element(
                "svg",
                element("style", Markup(STYLE)),
                card,
                Markup("\n").join(parts),
                **named,
                **size,
            )
        )
        + "\n"
    )


def main() -> None:
    for name, drawn in (("architecture", architecture()), ("gram_run", gram_run())):
        (FOLDER / f"{name}.svg").write_text(drawn)


if __name__ == "__main__":
    main()
