"""A picture of a benchmark, as a file."""

from collections.abc import Iterable

from markupsafe import Markup

from understudy.report.plots import element


def picture(
    said: str, style: str, parts: Iterable[Markup], width: int, height: int
) -> str:
    """The SVG file of these parts; `said`: what who does not see it is told."""
    size = {"viewBox": f"0 0 {width} {height}", "width": width, "height": height}
    named = {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "aria_label": said}
    return (
        str(
            element(
                "svg",
                element("style", Markup(style)),
                Markup("\n").join(parts),
                **named,
                **size,
            )
        )
        + "\n"
    )
