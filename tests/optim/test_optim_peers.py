"""Against pytorch-optimizer, which lives in the environment that `make peers` makes."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from waiting import LIMIT

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / ".peers" / "bin" / "python"

SCRIPT = """
import json, torch, torch.nn.functional as F, pytorch_optimizer as peer
from slow_optimizers import MODELS, batches, largest_difference, train
from toosure.optim import ASAM, SAM

sgd = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}
out = {}
for name, adaptive in (("sam", False), ("asam", True)):
    for kind in MODELS:
        ours, theirs = MODELS[kind]().eval(), MODELS[kind]().eval()  # they move BatchNorm twice
        method = ASAM(ours.parameters(), rho=0.1, eta=0.0, **sgd) if adaptive else SAM(
            ours.parameters(), rho=0.1, **sgd)
        train(ours, method, F.cross_entropy, batches(kind))
        optimizer = peer.SAM(
            theirs.parameters(), torch.optim.SGD, rho=0.1, adaptive=adaptive, **sgd)
        for inputs, labels in batches(kind):
            def closure():
                optimizer.zero_grad()
                loss = F.cross_entropy(theirs(inputs), labels)
                loss.backward()
                return loss
            closure()
            optimizer.step(closure)
        out[f"{name} {kind}"] = largest_difference(ours, theirs)
print(json.dumps(out))
"""


@pytest.mark.skipif(not PEERS.exists(), reason="no .peers environment; run `make peers`")
def test_sam_and_asam_equal_pytorch_optimizers():
    folders = [ROOT / "src", Path(__file__).parent]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}
    environment["OMP_NUM_THREADS"] = "1"
    done = subprocess.run(
        [PEERS, "-c", SCRIPT], capture_output=True, text=True, env=environment, timeout=LIMIT
    )
    if "No module named 'pytorch_optimizer'" in done.stderr:
        pytest.skip("pytorch-optimizer is not in .peers; run `make peers`")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == 4
    # Their norm is summed in float32, so they are right to about 1e-7 of the perturbation.
    assert max(found.values()) < 1e-7 * 0.1, found
