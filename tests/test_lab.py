"""JupyterLab in a browser: a server of its own, sentiment-direction run from top to bottom, and its slider moved."""

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import book_site
import pytest

from helpers import papers

PAPER = papers.paper("sentiment-direction")
_PATIENCE = 900_000  # milliseconds, for a notebook of a minute on a machine that is busy with something else
_PROMPTS = "Array.from(document.querySelectorAll('.jp-NotebookPanel .jp-InputPrompt'), one => one.textContent)"
_SETTINGS = {
    # all cells in the page, not only those on the screen
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/docmanager-extension/plugin": {"autosave": False},
}


@contextmanager
def lab(folder: Path, root: Path) -> Iterator[str]:
    """A JupyterLab that knows no other user's settings; gives its address with the token."""
    token, runtime = secrets.token_hex(16), folder / "runtime"
    for name, settings in _SETTINGS.items():
        path = folder / "settings" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(settings), encoding="utf-8")
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive", "JUPYTER_CONFIG_DIR": str(folder / "config")} | {
        "JUPYTER_RUNTIME_DIR": str(runtime),
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(papers.ROOT), os.environ.get("PYTHONPATH")])),
    }
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.port=0"]
    command += [f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={root}", "--ServerApp.ip=127.0.0.1"]
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(command, env=environment, cwd=root, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield f"{_address(server, runtime, folder / 'server.log')}lab/tree/{{}}?token={token}&reset"
    finally:
        server.terminate()  # it ends its kernels
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            server.kill()


def _address(server: subprocess.Popen, runtime: Path, log: Path) -> str:
    for _ in range(1200):
        for path in runtime.glob("jpserver-*.json"):
            try:
                return json.loads(path.read_text(encoding="utf-8"))["url"].replace("localhost", "127.0.0.1")
            except ValueError:
                pass  # half written
        assert server.poll() is None, log.read_text(encoding="utf-8", errors="replace")
        time.sleep(0.1)
    raise AssertionError(log.read_text(encoding="utf-8", errors="replace"))


@pytest.mark.lab
@pytest.mark.model
@pytest.mark.timeout(2400)
def test_the_widget_moves_the_figure(tmp_path):
    book_site.chromium()
    root = tmp_path / "notebooks"
    root.mkdir()
    shutil.copy(PAPER.notebook, root)
    with lab(tmp_path, root) as address, book_site.browser() as browser:
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        tab.set_default_timeout(120_000)
        tab.goto(address.format(PAPER.notebook.name))
        panel = tab.locator(".jp-NotebookPanel")
        panel.wait_for()
        # the notebook's own sign says idle before there is a kernel, and Run then asks which one to start
        tab.locator("#jp-main-statusbar").get_by_text(re.compile(r"\| Idle$")).wait_for()
        tab.locator("li.lm-MenuBar-item", has_text=re.compile("^Run$")).click()
        tab.locator("li.lm-Menu-item[data-command='runmenu:run-all']").click()
        _all_done(tab)  # first of all: after an error the cells below it, the widget's too, are not run
        traces = panel.locator(".jp-OutputArea-output").filter(has_text="Traceback (most recent call last)")
        assert not traces.count(), traces.first.inner_text()
        assert "[ ]:" not in tab.evaluate(_PROMPTS), "a cell was not run"
        handle = panel.locator(".widget-slider .noUi-handle")
        handle.wait_for()
        strip = panel.locator(".widget-html-content", has=tab.locator("span")).last
        before = strip.inner_html()
        layer = panel.locator(".widget-slider .widget-readout").inner_text()
        handle.scroll_into_view_if_needed()
        handle.focus()
        handle.press("ArrowRight")
        book_site.eventually(lambda: panel.locator(".widget-slider .widget-readout").inner_text() != layer)
        book_site.eventually(lambda: strip.inner_html() != before)
        assert len(strip.inner_text().split()) > 3 and "background" in strip.inner_html()


def _all_done(tab) -> None:
    """Wait until cells run, or an error has cleared their numbers, and then until none waits or runs any more."""
    tab.wait_for_function(f"{_PROMPTS}.some(one => one.includes('*') || one.includes('[ ]'))")
    tab.wait_for_function(f"!{_PROMPTS}.some(one => one.includes('*'))", timeout=_PATIENCE)
