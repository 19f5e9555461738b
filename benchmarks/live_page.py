"""The pages in a real browser: time to the first picture, and the longest task while 20 runs write.

Needs Chromium, its driver and selenium. `--quick` writes fewer runs for less time.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from selenium import webdriver

from report import write_run
from toosure.page.report import report
from toosure.runs import RunWriter

FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"),
    *("--disable-dev-shm-usage", "--disable-background-networking"),
)
PAINTS = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
IS_READY = "return 'ready' in document.documentElement.dataset"
OBSERVE = """
window.long = [];
new PerformanceObserver((list) => list.getEntries().forEach((task) => long.push(task.duration)))
  .observe({ type: "longtask" });
document.querySelector("[data-set=all]").click(); // all lines, not only the best six
document.getElementById(arguments[0]).scrollIntoView();
"""


def start_browser() -> webdriver.Chrome:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in FLAGS:
        options.add_argument(flag)
    options.add_argument("--window-size=1400,900")
    return webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))


def wait_for(browser: webdriver.Chrome, script: str, seconds: float = 60) -> object:
    """Evaluate a script until it gives something."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = browser.execute_script(script)
        if found:
            return found
        time.sleep(0.05)
    raise TimeoutError(f"not within {seconds} s: {script}")


def measure_opening(browser: webdriver.Chrome, runs: int, rows: int, times: int = 3) -> None:
    """Print when a report of many runs shows its first picture."""
    folder = Path(tempfile.mkdtemp())
    try:
        for seed in range(runs):
            write_run(folder / "runs" / f"r{seed}", rows, seed)
        page = folder / "report.html"
        page.write_text(report(folder / "runs"), encoding="utf-8")

        paints = []
        for _ in range(times):
            browser.get("about:blank")
            browser.get(page.as_uri())
            wait_for(browser, IS_READY)
            paints.append(float(str(wait_for(browser, PAINTS))) / 1000)
    finally:
        shutil.rmtree(folder)
    seconds = ", ".join(f"{paint:.2f}" for paint in paints)
    print(f"| first picture of {runs} runs of {rows:,} rows, s | {seconds} |", flush=True)


def row(step: int, run: int) -> dict[str, float]:
    """Return a row with the numbers of every panel that training fills."""
    values: dict[str, float] = {"step": step, "lr": 0.1, "seconds": step / 20}
    ece = 0.1 + 0.001 * (step % 7) + 0.002 * run
    for split in ("train", "val"):
        values |= {f"{split}/loss": 2 / (1 + step), f"{split}/accuracy": 0.8}
        values |= {f"{split}/confidence": 0.8 + ece, f"{split}/ece": ece, f"{split}/smece": ece / 2}
        values |= {f"{split}/nll": 0.5, f"{split}/gn_sharpness": 2.0 + step % 5}
        values |= {f"{split}/margin_q01": -1.0 - step / 100}
    return values


def measure_tasks(browser: webdriver.Chrome, runs: int, seconds: float, section: str) -> None:
    """Print the longest task of the live page while runs write 20 rows a second each."""
    folder = Path(tempfile.mkdtemp())
    writers = []
    for run in range(runs):
        config = {"optimizer": f"sgd:lr={run + 1}", "steps": 5000, "every": 1, "seed": 0}
        writer = RunWriter(folder / f"r{run}", config)
        writers.append(writer)
        for step in range(200):
            writer.append(row(step, run))
        writer.set_status("running", 199)

    port = free_port()
    command = [sys.executable, "-m", "toosure", "live", str(folder), "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        wait_for_server(port)
        browser.get(f"http://127.0.0.1:{port}/")
        wait_for(browser, IS_READY)
        browser.execute_script(OBSERVE, section)
        step = write_rows(writers, seconds)
        tasks = browser.execute_script("return long")
        said = browser.execute_script("return document.getElementById('said').textContent")
    finally:
        server.terminate()
        server.wait()
        for writer in writers:
            writer.close()
        shutil.rmtree(folder)

    longest = max(tasks, default=0.0)
    print(
        f"| longest task at #{section}, ms ({runs} runs, {step - 200} rows each, {said}) | "
        f"{longest:.0f}; {len(tasks)} above 50 |",
        flush=True,
    )


def write_rows(writers: list[RunWriter], seconds: float) -> int:
    """Let every run write 20 rows a second; return the step they came to."""
    step = 200
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for run, writer in enumerate(writers):
            for k in range(5):
                writer.append(row(step + k, run))
        step += 5
        time.sleep(0.25)
    return step


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_for_server(port: int, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise TimeoutError(f"no server within {seconds} s")


if __name__ == "__main__":
    is_quick = "--quick" in sys.argv
    browser = start_browser()
    try:
        load = os.getloadavg()[0]
        print(f"{os.cpu_count()} cores, load {load:.1f}\n\n| | |\n|---|---|")
        measure_opening(browser, *((10, 200) if is_quick else (100, 5000)))
        for section in ("summary", "trajectories", "phase"):
            measure_tasks(browser, 20, 5 if is_quick else 20, section)
    finally:
        browser.quit()
