"""Turn the figures of a recipe's page into small PNG files, with a browser that draws them.

python recipes/pictures.py runs/too-sharp/too-sharp.html recipes/too_sharp/figures [NAME ...]
"""

import base64
import io
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from selenium import webdriver

WIDTH = 920  # pixels
COLOURS = 200

# Runs in the page: each named figure is drawn anew at this width and returned as a data URL.
DRAW = """
const [width, done] = arguments, images = {};
(async () => {
  for (const plot of document.querySelectorAll(".plot[data-name]")) {
    plot.style.width = `${width}px`;
    toosure.draw(plot);
    images[plot.dataset.name] = await toosure.pngUrl(plot, 1);
  }
  done(images);
})();
"""


def browser(profile: str) -> webdriver.Chrome:
    """Start a browser without a window."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"):
        options.add_argument(flag)

    driver = shutil.which("chromedriver")
    return webdriver.Chrome(options, webdriver.ChromeService(driver) if driver else None)


def pictures(page: Path) -> dict[str, bytes]:
    """Return every named figure of a page as a small PNG."""
    with tempfile.TemporaryDirectory() as profile:
        window = browser(profile)
        try:
            window.set_script_timeout(300)
            window.get(page.resolve().as_uri())
            urls = window.execute_async_script(DRAW, WIDTH)
        finally:
            window.quit()

    return {name: shrink(base64.b64decode(url.split(",")[1])) for name, url in urls.items()}


def shrink(png: bytes) -> bytes:
    """Reduce a picture to a palette: a quarter of the size, and the same to the eye."""
    picture = Image.open(io.BytesIO(png)).convert("RGB").quantize(COLOURS)
    out = io.BytesIO()
    picture.save(out, "PNG", optimize=True)
    return out.getvalue()


def main(page: str, folder: str, *names: str) -> None:
    """Write the pictures with these names, or all."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, png in pictures(Path(page)).items():
        if not names or name in names:
            (Path(folder) / f"{name}.png").write_bytes(png)
            print(f"{folder}/{name}.png: {len(png) / 1024:.0f} KiB")


if __name__ == "__main__":
    main(*sys.argv[1:])
