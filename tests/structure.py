"""What a page is made of, whatever its texts say: so a text that became markup, or a
link, is seen.
"""

from html.parser import HTMLParser

import httpx

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    '" autofocus onfocus="alert(1)',
    "javascript:alert(1)",
    "</pre></code></style></title><svg onload=alert(1)>",
    "{{ 7 * 7 }}{% raw %}",
    "<!--",
    "&lt;script&gt;&#60;b&#62;",
    "two\nlines\r\n<b>of",
    "]]><a href=//evil.example>",
    "turned\u202earound\u2066\u200b",
)
PLAIN = tuple(f"word{number}" for number in range(len(HOSTILE)))
_PLACES = {"href", "src", "action", "formaction", "data", "poster", "xlink:href"}
_FINE = ("/", "#", "data:image/png;base64,")


class Structure(HTMLParser):
    """Every element with the names of its attributes, in order; `places` are where its
    links lead.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, ...]] = []
        self.places: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, *(name for name, _ in attrs)))
        self.places += [value or "" for name, value in attrs if name in _PLACES]

    def handle_endtag(self, tag: str) -> None:
        self.elements.append((f"/{tag}",))

    def handle_comment(self, data: str) -> None:
        self.elements.append(("comment",))

    def handle_decl(self, decl: str) -> None:
        self.elements.append(("declaration",))


def same_page(hostile: httpx.Response, plain: httpx.Response) -> None:
    """Hostile texts and plain ones make the same page, whose links stay on it, and turn
    no line around.
    """
    theirs = Structure(hostile.text)
    ours = Structure(plain.text)
    assert theirs.elements == ours.elements
    assert all(
        place.startswith(_FINE) and not place.startswith("//")
        for place in theirs.places
    ), theirs.places
    assert not {"script", "iframe", "object", "embed", "base", "link"} & {
        tag for tag, *_ in theirs.elements
    }
    assert not any(
        name.startswith("on") for _, *names in theirs.elements for name in names
    )
    assert not set("\u202e\u2066\u200b\x00\x1b") & set(hostile.text)
    assert "default-src 'none'" in hostile.headers["content-security-policy"]
    assert "script-src" not in hostile.headers["content-security-policy"]
