"""The page in a real browser, on workers that really solve."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import expect, sync_playwright

import commands

pytestmark = pytest.mark.slow
BROWSER = "/usr/bin/chromium"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
PATIENCE = 180_000


@pytest.fixture(scope="module")
def server():
    process = subprocess.Popen(
        [sys.executable, "-m", "latentuq", "serve", "--port", "0", "--workers", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.fullmatch(r"The page is at (http://127\.0\.0\.1:\d+/) \(Ctrl-C stops it\)\.\n", line)
    assert found, line
    yield found[1], process.pid
    # It stops cleanly, while somebody still looks at it.
    with httpx.stream("GET", found[1]):
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=30)
    assert (process.returncode, rest) == (0, "Stopped.\n")


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def visit(browser, server):
    """Opens pages; in the end no error was on a console, and no request has left the machine."""
    troubles, contexts = [], []

    def visit(address="", **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | options)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        own = urlsplit(server[0]).netloc

        def check(request):
            if request.url.startswith("http") and urlsplit(request.url).netloc != own:
                troubles.append(request.url)

        page.on("request", check)
        page.on(
            "console", lambda message: message.type == "error" and troubles.append(message.text)
        )
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.goto(server[0] + address)
        return page

    visit.troubles = troubles
    yield visit
    for context in contexts:
        context.close()
    assert troubles == []


@pytest.fixture(scope="module")
def page(visit):
    page = visit()
    done(page)
    return page


def done(page):
    expect(page.locator("#status")).to_have_text(re.compile(r"^Done in "), timeout=PATIENCE)


def begins(page):
    """Waits until the answer before is out of date."""
    expect(page.locator("#status")).not_to_have_text(re.compile(r"^Done in "), timeout=10_000)


def cards(page):
    return page.locator(".card b").all_inner_texts()


def stroke(page, *places):
    box = page.locator("#painter").bounding_box()
    points = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in places]
    page.mouse.move(*points[0])
    page.mouse.down()
    for point in points[1:]:
        page.mouse.move(*point, steps=8)
    page.mouse.up()


def test_it_opens_with_a_damaged_digit_and_its_answer(page):
    expect(page.locator("#examples button")).to_have_count(40)
    assert len(cards(page)) >= 1
    assert sum(float(each.split()[0]) for each in cards(page)) > 90
    expect(page.locator("#word")).to_have_text("reliable")
    page.locator("#trust summary").click()
    expect(page.locator("#marks li")).to_have_count(3)
    expect(page.locator("#numbers")).to_contain_text("ln evidence")


def test_a_stroke_hides_pixels_and_changes_the_modes(page):
    before, address = cards(page), page.url
    page.locator("input[value=reveal] + span").click()
    page.locator("#size").fill("8")
    stroke(page, (0.35, 0.2), (0.35, 0.8))
    begins(page)
    done(page)
    assert cards(page) != before
    assert page.url != address
    page.locator("#undo").click()
    begins(page)
    done(page)
    assert page.url == address
    assert cards(page) == before


def test_pointing_at_a_pixel_shows_its_distribution(page):
    page.locator("#mean").hover(position={"x": 60, "y": 50})
    expect(page.locator("#marginal-text")).to_have_text(
        re.compile(r"Row \d+, column \d+: −?\d\.\d\d to −?\d\.\d\d \(90 %\), mean −?\d\.\d\d")
    )


def test_samples_are_turned_over_and_can_be_paused(page):
    name = page.locator("#flip-name")
    expect(page.locator("#play")).to_have_text("Pause")
    before = name.inner_text()
    expect(name).not_to_have_text(before)
    page.locator("#play").click()
    time.sleep(0.5)
    before = name.inner_text()
    time.sleep(0.7)
    assert name.inner_text() == before
    page.locator("#next").click()
    expect(name).not_to_have_text(before)


def test_a_mode_shows_its_samples(page):
    card = page.locator(".card").first
    card.click()
    expect(card).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#flip-name")).to_contain_text("Possibility 1")
    card.click()
    expect(page.locator("#flip-name")).to_contain_text(re.compile(r"^Sample"))


def download(page, name):
    with page.expect_download(timeout=PATIENCE) as found:
        page.locator(f"[data-file='{name}']").click()
    assert found.value.suggested_filename == f"latentuq-{name}"
    return Path(found.value.path()).read_bytes()


def test_the_copied_command_gives_the_downloaded_report(page, tmp_path, monkeypatch, capsys):
    page.locator("#copy-command").click()
    expect(page.locator("#status")).to_have_text("The command was copied.")
    command = page.evaluate("() => navigator.clipboard.readText()")
    zipfile.ZipFile(io.BytesIO(download(page, "problem.zip"))).extractall(tmp_path)
    code, _, err = commands.call(monkeypatch, capsys, tmp_path, *command.split()[1:])
    assert code == 0, err
    shown = cards(page)
    made = json.loads((tmp_path / "report/summary.json").read_text())
    assert [f"{100 * mode['weight']:.1f} %" for mode in made["modes"]] == shown
    report = download(page, "report.html").decode()
    assert report.startswith("<!doctype html>")
    assert command in report
    assert download(page, "overview.png").startswith(b"\x89PNG")
    assert download(page, "posterior.nc")[1:4] == b"HDF"


def test_the_address_brings_everything_back(page, visit):
    again = visit(f"#{urlsplit(page.url).fragment}")
    done(again)
    assert cards(again) == cards(page)
    assert again.url == page.url
    again.context.close()


def test_the_keyboard_is_enough(visit):
    page = visit("#model=mnist&example=2&noise=0.2&seed=1", reduced_motion="reduce")
    done(page)
    expect(page.locator("#play")).to_have_text("Play")

    def go(wanted):
        for _ in range(80):
            page.keyboard.press("Tab")
            if (
                page.evaluate("() => document.activeElement.id || document.activeElement.className")
                == wanted
            ):
                return
        pytest.fail(f"The key Tab does not lead to {wanted}.")

    go("painter")
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    expect(page.locator("#told")).to_have_text("Row 15, column 12, seen")
    page.keyboard.down("Shift")
    for _ in range(6):
        page.keyboard.press("ArrowDown")
    page.keyboard.up("Shift")
    expect(page.locator("#told")).to_have_text("Row 21, column 12, hidden")
    begins(page)
    assert "mask=" in page.url
    done(page)
    page.keyboard.press("z")
    begins(page)
    assert "mask=" not in page.url
    done(page)
    go("mean")
    page.keyboard.press("ArrowUp")
    expect(page.locator("#marginal-text")).to_contain_text("Row 14, column 15")
    go("card card0")
    page.keyboard.press("Enter")
    expect(page.locator("#flip-name")).to_contain_text("Possibility 1")
    page.context.close()


def test_an_image_of_ones_own_is_read(page, visit):
    picture = np.full((60, 60), 255, np.uint8)
    picture[10:50, 27:33] = 0
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "PNG")
    file = {"name": "one.png", "mimeType": "image/png", "buffer": buffer.getvalue()}
    page.locator("#file").set_input_files(file)
    begins(page)
    expect(page.locator("#invert-field")).to_be_visible()
    page.locator("#invert").check()
    page.locator("#clear").click()
    begins(page)
    done(page)
    expect(page.locator("#clean")).not_to_be_checked()
    expect(page.locator("#truth-figure")).to_be_hidden()
    wrong = {"name": "one.png", "mimeType": "image/png", "buffer": b"nonsense"}
    page.locator("#file").set_input_files(wrong)
    expect(page.locator("#status")).to_contain_text("Cannot read picture.png as an image")
    # Chromium itself notes on the console that a request was refused.
    assert [each for each in visit.troubles if " 422 " not in each] == []
    visit.troubles.clear()


def test_a_drawing_is_in_the_address(visit):
    page = visit()
    expect(page.locator("#examples button")).to_have_count(40)
    page.locator("#draw").click()
    stroke(page, (0.5, 0.2), (0.5, 0.8))
    assert "drawing=" in page.url
    done(page)
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_it_is_accessible_and_fits(visit, page, tmp_path, width, scheme):
    shown = visit(
        f"#{urlsplit(page.url).fragment}" if "example" in page.url else "",
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
    )
    done(shown)
    shown.locator("#trust summary").click()
    shown.locator("#mean").hover(position={"x": 20, "y": 20})
    found = Axe().run(shown).response["violations"]
    serious = {
        each["id"]: each["nodes"] for each in found if each["impact"] in ("serious", "critical")
    }
    assert serious == {}
    assert shown.evaluate("() => document.documentElement.scrollWidth") <= width
    assert len(shown.screenshot(path=tmp_path / "page.png", full_page=True)) > 50_000
    shown.context.close()


def test_a_worker_that_is_killed_is_replaced_and_its_job_says_so(server):
    address, pid = server
    with httpx.Client(base_url=address, timeout=200) as web:
        request = {"model": "mnist", "example": 6, "mask": [[1] * 12 + [0] * 16] * 28}
        job = web.post("/api/solve", json=request).json()["id"]
        with web.stream("GET", f"/api/jobs/{job}/events") as stream:
            for line in stream.iter_lines():
                if line == "event: stated":
                    for worker in workers_of(pid):
                        os.kill(worker, signal.SIGKILL)
        told = web.get(f"/api/jobs/{job}").json()
        assert told["state"] == "failed"
        assert "has died; it was replaced" in told["detail"]
        job = web.post("/api/solve", json=request).json()["id"]
        with web.stream("GET", f"/api/jobs/{job}/events") as stream:
            events = [line for line in stream.iter_lines() if line.startswith("event")]
        assert events[-1] == "event: done"


def workers_of(pid):
    children = Path(f"/proc/{pid}/task").glob("*/children")
    pids = {int(each) for file in children for each in file.read_text().split()}
    return [each for each in pids if b"spawn_main" in Path(f"/proc/{each}/cmdline").read_bytes()]
