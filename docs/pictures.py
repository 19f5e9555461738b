"""Draw the pictures of the site with the library itself: python docs/pictures.py [NAME ...]

Every picture comes from small runs on digits that this script trains (half a minute on one core)
and from the figures of `toosure.figures`; a browser without a window turns them into SVG files in
docs/images/site. It needs Chromium and selenium. Run it again when a figure changes its looks.
"""

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import torch
from selenium import webdriver
from torch import Tensor, nn

from toosure import Run, Watch, figures
from toosure.config import RunConfig
from toosure.curvature import top_eigenpairs
from toosure.figures.style import INK, MAGENTA, OVER, PALETTE, PLAIN_LAYOUT, QUIET, TEAL, log_axis
from toosure.margins import attacked_margin, certified_margin, log_moment, true_margin
from toosure.metrics import nll_split, reliability
from toosure.optim import CSAM
from toosure.page.html import page, plot
from toosure.posthoc import Temperature
from toosure.train import train

FOLDER = Path(__file__).resolve().parent / "images" / "site"
WIDTH = 640  # pixels
HEIGHTS = {"watched_loop": 460}  # of pictures that are not 320 high

# Runs in the page: each figure is drawn at this width, and its SVG is returned.
DRAW = """
const [width] = arguments, images = {};
for (const plot of document.querySelectorAll(".plot")) {
  plot.style.width = `${width}px`;
  plot.style.height = `${plot.dataset.role.split(":")[1]}px`;
  toosure.draw(plot);
  images[plot.dataset.role.split(":")[0]] = toosure.svgText(plot);
}
return images;
"""


def noisy_digits() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return 200 training and 500 validation digits, a fifth of their labels wrong."""
    from sklearn.datasets import load_digits

    torch.manual_seed(0)
    digits = load_digits()
    inputs = torch.tensor(digits.data, dtype=torch.float32) / 16
    labels = torch.tensor(digits.target)
    wrong = torch.rand(len(labels)) < 0.2
    labels[wrong] = torch.randint(10, (int(wrong.sum()),))
    train_rows, val_rows = torch.randperm(len(labels))[:700].split([200, 500])
    return (inputs[train_rows], labels[train_rows]), (inputs[val_rows], labels[val_rows])


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))


def scikit_predictions() -> list[tuple[Tensor, Tensor]]:
    """Return validation and test predictions of the network in "A verdict in five minutes"."""
    from sklearn.datasets import load_digits
    from sklearn.neural_network import MLPClassifier

    rng = np.random.default_rng(0)
    x, y = load_digits(return_X_y=True)
    order = rng.permutation(len(y))
    x, y = x[order] + rng.normal(0, 4, x.shape), y[order]
    classifier = MLPClassifier(random_state=0).fit(x[:500], y[:500])

    def predictions(rows: slice) -> tuple[Tensor, Tensor]:
        return torch.tensor(classifier.predict_proba(x[rows])), torch.tensor(y[rows])

    return [predictions(slice(500, 1000)), predictions(slice(1000, None))]


class Story:
    """The runs that the pictures show: SGD and CSAM on noisy digits, as in the start pages."""

    def __init__(self, folder: Path) -> None:
        self.train, self.val = noisy_digits()
        self.folder = folder
        self.splits: list[tuple[int, float, float]] = []
        self.bounds: list[tuple[int, float]] = []
        self.model = network()
        self.sgd = self.fit("SGD", torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9))

        self.other = network()
        csam = CSAM(self.other.parameters(), rho=0.2, gamma=1.0, lr=0.1, momentum=0.9)
        self.csam = self.fit("CSAM", csam)

    def fit(self, name: str, optimizer: torch.optim.Optimizer) -> Run:
        """Train for a hundred epochs, and return the run."""
        x, y = self.train
        loss = nn.CrossEntropyLoss()
        is_csam = isinstance(optimizer, CSAM)
        criterion = optimizer.criterion(loss) if is_csam else loss
        model = self.other if is_csam else self.model

        torch.manual_seed(1)
        with Watch(model, loss, self.train, self.val, run=self.folder / name, every=10) as watch:
            for step in range(400):
                if not is_csam and step % 10 == 0:
                    self.look(step)
                batch = torch.randperm(len(y))[:50]

                def closure(batch: Tensor = batch) -> Tensor:
                    optimizer.zero_grad()
                    value = criterion(model(x[batch]), y[batch])
                    value.backward()
                    return value

                optimizer.step(closure)
                watch.step()
        return Run(self.folder / name)

    def look(self, step: int) -> None:
        """Note what the rows of a run do not hold: the two parts of the NLL, and the moment Q."""
        with torch.no_grad():
            parts = nll_split(self.model(self.val[0]), self.val[1])
            moment = log_moment(true_margin(self.model(self.train[0]), self.train[1])).exp()
        self.splits.append((step, float(parts.calibration), float(parts.refinement)))
        self.bounds.append((step, float(moment)))


def curve(name: str, x: object, y: object, colour: str, dash: str = "solid") -> go.Scatter:
    line = {"color": colour, "width": 2.2, "dash": dash}
    return go.Scatter(x=x, y=y, name=name, mode="lines", line=line)


def drawing(*traces: go.Scatter, x: str, y: str, log: bool = False) -> go.Figure:
    """Return lines in the one look of all figures."""
    figure = go.Figure(traces, layout=PLAIN_LAYOUT)
    figure.update_xaxes(title_text=x)
    figure.update_yaxes(log_axis([np.asarray(t.y) for t in traces]) if log else {}, title_text=y)
    return figure


def reliability_before(story: Story) -> go.Figure:
    _, (probs, labels) = scikit_predictions()
    return figures.reliability_diagram(reliability(probs=probs, labels=labels))


def reliability_after(story: Story) -> go.Figure:
    """Fit a temperature on validation rows, and draw the test rows."""
    (probs, labels), (test_probs, test_labels) = scikit_predictions()
    calibrated = Temperature().fit(probs=probs, labels=labels).transform(probs=test_probs)
    return figures.reliability_diagram(reliability(probs=calibrated, labels=test_labels))


def watched_loop(story: Story) -> go.Figure:
    runs = [story.sgd, story.csam]
    return figures.trajectory(runs, ["ece", "gn_sharpness"], splits=["val"])


def refinement(story: Story) -> go.Figure:
    step, calibration, rest = np.array(story.splits).T
    return drawing(
        curve("NLL", step, calibration + rest, INK),
        curve("refinement: after the best temperature", step, rest, TEAL, "dash"),
        curve("calibration: what it takes away", step, calibration, OVER, "dot"),
        x="step",
        y="nats, validation data",
    )


def margins(story: Story) -> go.Figure:
    with torch.no_grad():
        values = true_margin(story.model(story.val[0]), story.val[1]).numpy()
    counts, edges = np.histogram(values, bins=np.arange(-24, 25, 2.0))
    return figures.margin_histogram(edges, counts)


def sharpness(story: Story) -> go.Figure:
    """Draw the training loss along the sharpest direction, and along a random one."""
    x, y = story.train
    parameters = list(story.other.parameters())
    start = nn.utils.parameters_to_vector(parameters).detach()
    sharp = top_eigenpairs(story.other, story.train).vectors[0]
    other = torch.randn(start.shape, generator=torch.Generator().manual_seed(0))

    distance = np.linspace(-1.5, 1.5, 61)
    lines = []
    for direction in (sharp.to(start), other):
        unit = direction / direction.norm()
        losses = []
        for moved in distance:
            nn.utils.vector_to_parameters(start + float(moved) * unit, parameters)
            with torch.no_grad():
                losses.append(float(nn.functional.cross_entropy(story.other(x), y)))
        lines.append(losses)
    nn.utils.vector_to_parameters(start, parameters)
    return drawing(
        curve("along the sharpest direction", distance, lines[0], MAGENTA),
        curve("along a random one", distance, lines[1], QUIET, "dash"),
        x="distance from the weights",
        y="training loss",
    )


def edge_of_stability(story: Story) -> go.Figure:
    """Train by full-batch gradient descent at two rates; the dashed lines are 2 / lr."""
    task = {"data": "digits:train=500,noise=0.4", "model": "mlp:width=50"}
    lines = []
    for lr, colour in ((0.3, TEAL), (0.5, MAGENTA)):
        config = RunConfig(**task, optimizer=f"gd:lr={lr}", steps=800, every=4)
        columns = train(config, story.folder / "gd").columns
        step = columns["step"]
        lines.append(curve(f"lr = {lr}", step, columns["train/gn_sharpness"], colour))
        lines.append(curve(f"2 / {lr}", step[[0, -1]], [2 / lr, 2 / lr], colour, "dash"))
    return drawing(*lines, x="step", y="sharpness", log=True)


def theorem(story: Story) -> go.Figure:
    """Draw training ECE and the bound of Theorem 4.1 (i), (K - 1) Q, where it says something."""
    step, moment = np.array(story.bounds).T
    bound = np.minimum(1, 9 * moment)
    columns = story.sgd.columns
    return drawing(
        curve("training ECE", columns["step"], columns["train/ece"], TEAL),
        curve("its bound, 9 Q", step, bound, INK, "dash"),
        x="step",
        y="ECE",
        log=True,
    )


def certificates(story: Story) -> go.Figure:
    """Draw the mean margin within a radius: what an attack reached, and what is proved."""
    x, y = story.train[0][:60], story.train[1][:60]
    radii = np.array([0.001, 0.003, 0.01, 0.02, 0.03, 0.05])
    reached = [attacked_margin(story.model, x, y, float(eps)).values.mean() for eps in radii]
    proved = [certified_margin(story.model, x, y, float(eps)).values.mean() for eps in radii]
    return drawing(
        curve("an attack reached", radii, [float(v) for v in reached], PALETTE[3]),
        curve("proved for every point", radii, [float(v) for v in proved], PALETTE[5], "dash"),
        x="radius (largest change of a pixel, of 1)",
        y="mean margin, logits",
    )


PICTURES: dict[str, Callable[[Story], go.Figure]] = {
    "reliability": reliability_before,
    "reliability_after": reliability_after,
    "watched_loop": watched_loop,
    "refinement": refinement,
    "margins": margins,
    "sharpness": sharpness,
    "edge_of_stability": edge_of_stability,
    "theorem": theorem,
    "certificates": certificates,
}


def as_svg(drawings: dict[str, go.Figure]) -> dict[str, str]:
    """Draw figures with the script of our pages, in a browser without a window."""
    roles = {name: f"{name}:{HEIGHTS.get(name, 320)}" for name in drawings}
    body = "".join(plot(each, name, role=roles[name]) for name, each in drawings.items())
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        file.write_text(page("pictures", body), encoding="utf-8")

        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
        for flag in (
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={folder}",
        ):
            options.add_argument(flag)
        driver = shutil.which("chromedriver")
        window = webdriver.Chrome(options, webdriver.ChromeService(driver) if driver else None)
        try:
            window.get(file.as_uri())
            return window.execute_script(DRAW, WIDTH)
        finally:
            window.quit()


def main(*names: str) -> None:
    """Draw the pictures with these names, or all."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        story = Story(Path(folder))
        chosen = {name: PICTURES[name](story) for name in names or PICTURES}
        svgs = as_svg(chosen)

    for name, svg in svgs.items():
        (FOLDER / f"{name}.svg").write_text(svg + "\n", encoding="utf-8")
        print(f"{name}.svg: {len(svg) / 1024:.0f} KiB")


if __name__ == "__main__":
    main(*sys.argv[1:])
