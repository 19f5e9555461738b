"""On the published ResNet-20 and real CIFAR-10 images, against scipy and curvlinops."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.sparse.linalg import LinearOperator, eigsh

from toosure.curvature import LossCurvature, gn_sharpness, hessian_sharpness, jacobian_norms
from toosure.models import load_published, resnet20

PEERS = Path(__file__).resolve().parents[2] / ".peers" / "bin" / "python"
MEAN, STD = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])


@pytest.fixture(scope="module")
def trained(real_data):
    """The published weights and 64 test images as that network saw them."""
    model = load_published(resnet20(), real_data / "logits" / "weights_resnet20_c10_akamaster.npz")
    Image.MAX_IMAGE_PIXELS = None
    sheet = Image.open(real_data / "cifar10" / "test_batch.webp").convert("RGB")
    row = np.asarray(sheet.crop((0, 0, 64 * 32, 32)))  # the first 64 tiles of the first row
    x = torch.tensor(row).float().view(32, 64, 32, 3).permute(1, 3, 0, 2) / 255
    labels = np.load(real_data / "cifar10" / "labels.npz")["test_labels"][:64]
    return model, ((x - MEAN.view(3, 1, 1)) / STD.view(3, 1, 1), torch.tensor(labels).long())


def by_eigsh(curvature: LossCurvature, matrix: str) -> float:
    """ARPACK on our products in float64: another eigensolver, the same matrix."""

    def product(v):
        return curvature.apply(torch.from_numpy(v.reshape(1, -1).copy()), matrix)[0].numpy()

    operator = LinearOperator((curvature.size, curvature.size), product, dtype=np.float64)
    found = eigsh(operator, k=1, which="LA", tol=1e-5, ncv=12, return_eigenvectors=False)
    return float(found[0])


def check_against_eigsh(trained, n, matrix, measure):
    model, (x, y) = trained
    exact = by_eigsh(LossCurvature(model.double(), (x[:n].double(), y[:n])), matrix)
    found = measure(model.float(), (x[:n], y[:n]), rtol=1e-3)
    assert found.converged
    assert abs(found.value / exact - 1) <= found.error <= 1e-3


def test_resnet20_against_eigsh(trained):
    check_against_eigsh(trained, 8, "gn", gn_sharpness)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("matrix", "measure"), [("gn", gn_sharpness), ("hessian", hessian_sharpness)]
)
def test_resnet20_against_eigsh_on_more_images(trained, matrix, measure):
    check_against_eigsh(trained, 64, matrix, measure)


def test_resnet20_jacobian_norms_against_rows(trained):
    model, (x, _) = trained
    found = jacobian_norms(model.double(), x[:3].double()).value
    parameters = list(model.parameters())
    logits = model.eval()(x[:3].double())
    for i in range(3):
        rows = [torch.autograd.grad(z, parameters, retain_graph=True) for z in logits[i]]
        matrix = torch.stack([torch.cat([g.reshape(-1) for g in row]) for row in rows])
        assert found[i].item() == pytest.approx(
            torch.linalg.matrix_norm(matrix, 2).item(), rel=1e-9
        )


SCRIPT = """
import json, sys, torch
from curvlinops import GGNLinearOperator, HessianLinearOperator
saved = torch.load(sys.argv[1], weights_only=True)
model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4)).double()
model.load_state_dict(saved["model"])
args = (model, torch.nn.CrossEntropyLoss(), list(model.parameters()), [(saved["x"], saved["y"])])
operators = [GGNLinearOperator(*args), HessianLinearOperator(*args)]
print(json.dumps([(operator @ saved["v"]).tolist() for operator in operators]))
"""


@pytest.mark.skipif(not PEERS.exists(), reason="no peers' environment: run `make peers`")
def test_products_equal_curvlinops(tmp_path):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))
    model = model.double()
    x, y = torch.randn(30, 6).double(), torch.randint(0, 4, (30,))
    curvature = LossCurvature(model, (x, y))
    v = torch.randn(curvature.size).double()
    file = tmp_path / "case.pt"
    torch.save({"model": model.state_dict(), "x": x, "y": y, "v": v}, file)
    out = subprocess.run(
        [PEERS, "-W", "ignore", "-c", SCRIPT, file], capture_output=True, text=True, check=True
    )
    theirs = torch.tensor(json.loads(out.stdout.splitlines()[-1]), dtype=torch.float64)
    ours = torch.stack([curvature.apply(v[None], m)[0] for m in ("gn", "hessian")])
    torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-12)
