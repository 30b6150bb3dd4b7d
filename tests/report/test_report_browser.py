"""The page in a real browser: nothing is logged, nothing leaves, and nothing runs off a phone's screen."""

import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from report_cases import make_run

from understudy.report.page import write_report

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
    "--allow-file-access-from-files", "--enable-logging=stderr", "--v=0", "--virtual-time-budget=4000",
)  # fmt: skip
WIDTHS = (390, 768, 1280)

pytestmark = [
    pytest.mark.usefixtures("short_training"),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: install it to try the page in it"),
]

# The page has no script, so another page measures it in frames: each element's right end, all details open.
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


def browse(page: Path, profile: Path) -> tuple[str, str]:
    """What the page became, and what the browser logged."""
    assert CHROMIUM is not None
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_run(tmp_path_factory.mktemp("browser"), rows=60)
    write_report(folder)
    write_report(folder, publish=True)
    return folder


def test_the_page_fits_every_width_and_logs_nothing(folder: Path, tmp_path: Path) -> None:
    pages = ("report.html", "report-public.html")
    frames = "".join(
        f'<iframe src="{(folder / page).as_uri()}" style="border:0;width:{width}px;height:800px"></iframe>'
        for page in pages
        for width in WIDTHS
    )
    wrapper = tmp_path / "measure.html"
    wrapper.write_text(MEASURE % frames)
    dom, log = browse(wrapper, tmp_path / "profile")
    assert "CONSOLE" not in log, log
    found = re.findall(r"<p>width (\d+): page (\d+), sections (\d+), off (.*?)</p>", dom)
    assert [int(width) for width, *_ in found] == [*WIDTHS, *WIDTHS], dom[-2000:]
    for width, page, _, off in found:
        assert int(page) <= int(width), f"at {width} pixels the page is {page} wide: {off}"
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
    folder: Path, tmp_path: Path, listener: tuple[str, list[str]]
) -> None:
    address, heard = listener
    text = (folder / "report-public.html").read_text()
    policy = re.compile(r"<meta http-equiv=.Content-Security-Policy.*?>")
    for name, page in (("held", text), ("free", policy.sub("", text))):
        at = f"{address}/{name}"
        smuggled = f'<img src="{at}/img"><script src="{at}/js"></script><p style="background:url({at}/css)">'
        (tmp_path / f"{name}.html").write_text(page.replace("<main>", f"<main>{smuggled}"))
    both = tmp_path / "both.html"
    both.write_text('<!doctype html><iframe src="held.html"></iframe><iframe src="free.html"></iframe>')
    _, log = browse(both, tmp_path / "profile")
    assert "Content Security Policy" in log
    left = {path for path in heard if path.startswith("/free/")}
    assert left == {"/free/img", "/free/js", "/free/css"}, (
        "without the policy they leave, or this proves nothing"
    )
    assert not [path for path in heard if path.startswith("/held/")]
