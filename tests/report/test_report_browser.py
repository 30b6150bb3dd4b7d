"""The page in a real browser: nothing is logged, nothing leaves, and nothing runs off a
phone's screen.
"""

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from browser import Browser
from report_cases import make_run

from forker import until
from understudy.report.page import write_report

WIDTHS = (390, 768, 1280)

pytestmark = pytest.mark.usefixtures("short_training")

# The page has no script, so another page measures it in frames: each element's right
# end, all details open.
MEASURE = """<!doctype html><meta charset="utf-8"><body>%s<script>
addEventListener("load", () => { for (const frame of document.querySelectorAll("iframe")) {
  const page = frame.contentDocument, width = frame.clientWidth;
  page.querySelectorAll("details").forEach(d => d.open = true);
  const scrolled = e => e.closest(".box") && e !== e.closest(".box");
  const off = [...page.body.querySelectorAll("*")].filter(
    e => !scrolled(e) && !e.closest("pre") && e.getBoundingClientRect().right > width + 1);
  const said = document.createElement("p");
  said.textContent = `width ${width}: page ${page.documentElement.scrollWidth}, sections ` +
    `${page.querySelectorAll("section").length}, off ${off.map(e => e.tagName + "." + e.className.baseVal).join(" ")}`;
  document.body.append(said);
}});
</script>"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_run(tmp_path_factory.mktemp("browser"), rows=60)
    write_report(folder)
    write_report(folder, publish=True)
    return folder


def test_the_page_fits_every_width_and_logs_nothing(
    folder: Path, browser: Browser, tmp_path: Path
) -> None:
    pages = ("report.html", "report-public.html")
    frames = "".join(
        (
            f'<iframe src="{(folder / page).as_uri()}" '
            f'style="border:0;width:{width}px;height:800px"></iframe>'
        )
        for page in pages
        for width in WIDTHS
    )
    wrapper = tmp_path / "measure.html"
    wrapper.write_text(MEASURE % frames)
    browser.go(wrapper.as_uri())
    dom = browser.dom()
    assert not browser.complaints()
    found = re.findall(
        r"<p>width (\d+): page (\d+), sections (\d+), off (.*?)</p>", dom
    )
    assert [int(width) for width, *_ in found] == [*WIDTHS, *WIDTHS], dom[-2000:]
    for width, page, _, off in found:
        assert int(page) <= int(width), (
            f"at {width} pixels the page is {page} wide: {off}"
        )
        assert not off
    assert [int(sections) for _, _, sections, _ in found] == [9, 9, 9, 7, 7, 7]


@pytest.fixture
def listener() -> Iterator[tuple[str, list[str]]]:
    """A server that remembers what it is asked for."""
    heard: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", heard
    server.shutdown()
    server.server_close()


def test_the_policy_stops_even_what_is_smuggled_in(
    folder: Path, browser: Browser, tmp_path: Path, listener: tuple[str, list[str]]
) -> None:
    address, heard = listener
    text = (folder / "report-public.html").read_text()
    policy = re.compile(r"<meta http-equiv=.Content-Security-Policy.*?>")
    for name, page in (("held", text), ("free", policy.sub("", text))):
        at = f"{address}/{name}"
        smuggled = (
            f'<img src="{at}/img"><script src="{at}/js"></script><p '
            f'style="background:url({at}/css)">'
        )
        (tmp_path / f"{name}.html").write_text(
            page.replace("<main>", f"<main>{smuggled}")
        )
    both = tmp_path / "both.html"
    both.write_text(
        '<!doctype html><iframe src="held.html"></iframe><iframe '
        'src="free.html"></iframe>'
    )
    browser.go(both.as_uri())
    # without the policy they leave, or this proves nothing
    free = {"/free/img", "/free/js", "/free/css"}

    def over() -> bool:
        browser.js("1")  # what it logged until now is heard
        stopped = [
            said for said in browser.complaints() if "Content Security Policy" in said
        ]
        return free <= {*heard} and len(stopped) >= len(free)

    until(over, 60, lambda: f"{heard} {browser.complaints()}")
    assert not [path for path in heard if path.startswith("/held/")]
