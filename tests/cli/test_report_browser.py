"""The page in a real browser: it draws, reports no error and asks the network for nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from base64 import b64encode
from dataclasses import dataclass
from hashlib import sha256
from html import unescape
from pathlib import Path

import pytest

from analysis.findings import TimeSeries
from analysis.report.html import campaign_page, run_page
from experiments.history.page import suite_page
from experiments.history.report import report_of
from tests.history_samples import a_night, regressed
from tests.report_samples import HOSTILE, campaign, failing, passing, unknown

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
TIMEOUT_S = 150
PAGE_TIME_MS = 8000  # of the page's own clock; a busy machine takes longer for it
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-features=NetworkTimeServiceQuerying",
    # the browser stays offline, whatever it or the page asks for
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--enable-logging=stderr",
)
#: Nothing acknowledged, one window with a latency: what makes axes without a range.
SILENT = TimeSeries(
    start_s=-5, step_s=1, intended=[0, 0], ok=[0, 0], p50_ms=[None] * 2, p99_ms=[None, 3.0]
)
#: Writes down, a second after loading, every address that the page has asked for.
SPY = """addEventListener("load", () => setTimeout(() => {
  const asked = performance.getEntriesByType("resource").map((entry) => entry.name);
  document.documentElement.dataset.asked = asked.filter((name) => !name.startsWith("data:")).join(" ");
}, 1000));"""

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine"),
]


@dataclass(frozen=True)
class Visit:
    dom: str
    console: list[str]
    requested: list[str]  # what the page itself asked for, by its own resource timing

    @property
    def problems(self) -> list[str]:
        """Console lines that are not Bokeh's own notice that it has drawn."""
        return [
            line for line in self.console if "[bokeh" not in line or "document idle" not in line
        ]


def with_script(html: str, script: str) -> str:
    """The page with one more script that its policy allows."""
    digest = b64encode(sha256(script.encode()).digest()).decode()
    allowed = html.replace("script-src ", f"script-src 'sha256-{digest}' ", 1)
    return allowed.replace("</body>", f"<script>{script}</script></body>")


def visit(html: str, folder: Path) -> Visit:
    page = folder / "report.html"
    page.write_text(with_script(html, SPY))
    argv = [str(BROWSER), *FLAGS, f"--user-data-dir={folder / 'profile'}"]
    argv += [f"--virtual-time-budget={PAGE_TIME_MS}", "--dump-dom", page.as_uri()]
    dom, log = _output(argv)
    console = [line for line in log.splitlines() if ":CONSOLE" in line]
    asked = re.search(r'data-asked="([^"]*)"', dom)
    assert asked, "the page's load event never came"
    return Visit(dom, console, unescape(asked[1]).split())


def measured(html: str, folder: Path, width: int, expression: str) -> dict[str, float]:
    """What a JavaScript expression gives in a window 900 high, once the charts are drawn."""
    page = folder / "report.html"
    script = f"document.documentElement.dataset.measured = JSON.stringify({expression})"
    ready = f"addEventListener('load', () => setTimeout(() => {{ {script} }}, 2000));"
    page.write_text(with_script(html, ready))
    argv = [
        str(BROWSER),
        *FLAGS,
        f"--user-data-dir={folder / 'profile'}",
        f"--window-size={width},900",
    ]
    argv += [
        "--hide-scrollbars",
        f"--virtual-time-budget={PAGE_TIME_MS}",
        "--dump-dom",
        page.as_uri(),
    ]
    found = re.search(r'data-measured="([^"]*)"', _output(argv)[0])
    assert found, "the page's load event never came"
    numbers: dict[str, float] = json.loads(unescape(found[1]))
    return numbers


def _output(argv: list[str]) -> tuple[str, str]:
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            return process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            pytest.fail(f"the browser was not done with the page after {TIMEOUT_S} s")


@pytest.mark.parametrize(
    "html",
    [
        run_page(failing()),
        run_page(passing()),
        run_page(unknown()),
        run_page(failing(scenario=HOSTILE, reasons=["</script>" + HOSTILE], command=HOSTILE)),
        run_page(failing(timeline=SILENT, percentiles=[(0.5, 3.0)])),
        campaign_page(campaign(), {"unsafe-1": failing(), "safe-1": passing()}),
    ],
    ids=["fail", "pass", "unknown", "hostile", "silent", "campaign"],
)
def test_page_draws_without_error_or_request(html: str, tmp_path: Path) -> None:
    seen = visit(html, tmp_path)
    assert 'data-ready="yes"' in seen.dom
    assert any("document idle" in line for line in seen.console), "the charts were not drawn"
    assert seen.problems == []
    assert seen.requested == []


def test_what_when_and_why_of_a_fail_stand_in_the_first_screen(tmp_path: Path) -> None:
    bottom = "(name) => document.querySelector(name).getBoundingClientRect().bottom"
    names = {"what": ".banner ul", "why": ".story", "checks": "#coverage", "drawn": "#when .plot"}
    wanted = ", ".join(f"{key}: at('{name}')" for key, name in names.items())
    shown = measured(run_page(failing()), tmp_path, 1400, f"((at) => ({{ {wanted} }}))({bottom})")
    assert list(shown) == sorted(shown, key=shown.__getitem__), "in this order"
    assert shown["drawn"] - shown["checks"] > 250, "the charts have a height"
    assert shown["drawn"] < 900


def test_nothing_is_cut_off_at_700_pixels(tmp_path: Path) -> None:
    widths = (
        "{page: document.documentElement.scrollWidth, table: "
        "document.querySelector('.faults').scrollWidth}"
    )
    shown = measured(run_page(failing()), tmp_path, 700, widths)
    assert 300 < shown["table"] <= shown["page"] <= 700


@pytest.mark.parametrize("cell", ["kafka-storm", HOSTILE], ids=["plain", "hostile"])
def test_the_page_of_a_night_is_drawn_without_a_script_of_its_own(
    cell: str, tmp_path: Path
) -> None:
    report = report_of(
        "nightly", a_night(11), regressed(cell=cell), {cell + " big": "</td>" + HOSTILE}
    )
    seen = visit(suite_page(report, tmp_path, {}), tmp_path)
    assert 'data-ready="yes"' in seen.dom
    assert seen.console == []
    assert seen.requested == []
    assert seen.dom.count("<script") == 2  # the page's, and the spy


def test_the_page_of_a_night_fits_700_pixels(tmp_path: Path) -> None:
    """Its wide tables scroll, by keyboard too; the page does not."""
    report = report_of(
        "nightly", a_night(11), regressed(cell="kafka-storm " + "very-long-name" * 8), {}
    )
    regions = (
        "[...document.querySelectorAll('.scroll')].filter((each) => each.tabIndex !== 0).length"
    )
    wanted = f"{{page: document.documentElement.scrollWidth, stuck: {regions}}}"
    assert measured(suite_page(report, tmp_path, {}), tmp_path, 700, wanted) == {
        "page": 700,
        "stuck": 0,
    }


def test_every_column_of_a_night_is_seen_on_a_phone(tmp_path: Path) -> None:
    page = suite_page(report_of("nightly", a_night(11), regressed(), {}), tmp_path, {})
    cells = "[...document.querySelectorAll('#matrix tbody tr:first-child > *')]"
    right = f"Math.max(...{cells}.map((cell) => cell.getBoundingClientRect().right))"
    found = measured(page, tmp_path, 400, f"{{page: innerWidth, right: {right}}}")
    assert found["right"] <= found["page"] <= 500  # no window of Chromium is narrower


def test_a_run_that_measured_nothing_has_a_page_without_charts(tmp_path: Path) -> None:
    nothing = failing(
        timeline=TimeSeries(start_s=0, step_s=1), faults=[], findings=[], percentiles=[]
    )
    seen = visit(run_page(nothing), tmp_path)
    assert 'data-ready="yes"' in seen.dom
    assert "Nothing was measured." in seen.dom
    assert seen.console == []


def test_a_request_would_be_seen_and_is_held_back(tmp_path: Path) -> None:
    """The test above can fail."""
    hole = '<img src="http://leak.invalid/x.png"><script src="http://leak.invalid/x.js"></script></main>'
    seen = visit(run_page(passing()).replace("</main>", hole), tmp_path)
    assert sorted(seen.requested) == ["http://leak.invalid/x.js", "http://leak.invalid/x.png"]
    assert sum("Content Security Policy" in line for line in seen.problems) == 2


def test_a_script_that_the_page_did_not_bring_does_not_run(tmp_path: Path) -> None:
    hole = "<script>document.documentElement.dataset.broken = 'yes'</script></main>"
    seen = visit(run_page(passing()).replace("</main>", hole), tmp_path)
    assert 'data-ready="yes"' in seen.dom
    assert "data-broken" not in seen.dom
