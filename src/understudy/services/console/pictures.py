"""Two small pictures, as the report draws its own: inline SVG, in the colours of the style sheet."""

from markupsafe import Markup

from understudy.privacy.accounts.budget import shown, shown_left
from understudy.report.plots import picture, tag


def budget_bar(limit: float, spent: float, price: float = 0.0) -> Markup:
    """What is spent of a budget, and what a contract would add; its words are for those who cannot see it."""
    top = max(limit, spent + price) or 1.0
    used, more, end = (f"{100 * value / top:.2f}%" for value in (spent, price, limit))
    said = f"ε {shown(spent)} of {limit:g} is spent" + (
        f", and this would add up to {shown(price)}" if price else ""
    )
    marks = [
        tag("rect", x="0", y=6, width="100%", height=12, rx=3, class_="track"),
        tag("rect", x="0", y=6, width=used, height=12, rx=3, class_="real"),
        tag("rect", x=used, y=6, width=more, height=12, class_="above"),
        tag("line", x1=end, x2=end, y1=2, y2=22, class_="end best"),
    ]
    return picture(f"{said}; {shown_left(max(0.0, limit - spent - price))} would be left.", 24, *marks)


def progress(share: float, label: str) -> Markup:
    """How far something is, between 0 and 1."""
    return picture(
        label, 18,
        tag("rect", x="0", y=5, width="100%", height=8, rx=4, class_="track"),
        tag("rect", x="0", y=5, width=f"{100 * min(1.0, max(0.0, share)):.1f}%", height=8, rx=4, class_="synthetic"),
    )  # fmt: skip
