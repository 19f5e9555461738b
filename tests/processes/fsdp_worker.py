"""What several gloo processes do with a network that FSDP2 shards, for test_fsdp.py.

Every check returns tensors or plain values, which each process saves. Without processes
(`mesh=None`) the same functions train in one process on the whole batch: the reference.
"""

import math
import os
import sys
import warnings
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from toosure.control import Radius, RadiusControl
from toosure.curvature import critical_sharpness
from toosure.optim import ASAM, BSAM, CSAM, SAM, VASSO, BulkSGD, Muon
from toosure.optim.passes import clip_each_member_
from toosure.processes import ALONE, join
from toosure.processes.gathered import GatheredModel
from toosure.watch import Watch

ROWS = 16  # of a batch, over all processes
CASES = {
    "sam": lambda m: SAM(m.parameters(), rho=0.1, lr=0.1, momentum=0.9),
    "sam, clipped": lambda m: SAM(m.parameters(), rho=0.1, lr=0.5, clip_norm=0.1),
    "csam": lambda m: CSAM(m.parameters(), rho=0.1, gamma=2.0, lr=0.1, momentum=0.9),
    "asam": lambda m: ASAM(m.named_parameters(), rho=0.5, lr=0.1),
    "vasso": lambda m: VASSO(m.parameters(), torch.optim.AdamW, rho=0.1, theta=0.5, lr=0.01),
    "bsam": lambda m: BSAM(m.parameters(), lr=0.1, data_size=100),
    "muon": lambda m: Muon(m, lr=0.02, fp32=True, weight_decay=0.1),
    "sam, muon": lambda m: SAM(m, base=Muon, rho=0.1, lr=0.02, fp32=True),
}
MICRO = ("vasso", "bsam")  # two micro-batches a step: they keep sums over them
RESUMED = ("csam", "vasso", "bsam", "sam, muon")


def make_model(mesh, dtype=torch.float64, **options):
    """Return a small network with a convolution, sharded layer by layer over a mesh."""
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv1d(1, 5, 2), nn.Tanh(), nn.Flatten()),
        *(nn.Linear(20, 7), nn.ReLU(), nn.Linear(7, 3)),
    ).to(dtype)
    if mesh is not None:
        for layer in (model[0], model[3]):
            fully_shard(layer, mesh=mesh, **options)
        fully_shard(model, mesh=mesh, **options)
    return model


def own_part(tensor, mesh):
    """Return this process's part of a batch."""
    return tensor if mesh is None else tensor.chunk(mesh.size())[dist.get_rank()]


def batch(step, dtype=torch.float64, rows=ROWS):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(rows, 1, 5, generator=generator, dtype=torch.float64).to(dtype)
    return x, torch.randint(3, (rows,), generator=generator)


def weights(model):
    """Return all weights in one vector, gathered."""
    parts = [p.full_tensor() if isinstance(p, DTensor) else p for p in model.parameters()]
    return torch.cat([part.detach().flatten() for part in parts]).clone()


def take_steps(model, optimizer, mesh, steps, name="", dtype=torch.float64):
    """Train; micro-batches are the same halves of the whole batch in any number of processes."""
    loss_of = optimizer.criterion() if isinstance(optimizer, CSAM) else nn.CrossEntropyLoss()
    for step in steps:
        x, y = batch(step, dtype)
        parts = [(x, y)]
        if name in MICRO:
            parts = list(zip(x.chunk(2), y.chunk(2), strict=True))

        def closure(x, y):
            loss = loss_of(model(own_part(x, mesh)), own_part(y, mesh))
            loss.backward()
            return loss

        closures = [lambda part=part: closure(*part) for part in parts]
        if isinstance(optimizer, SAM):
            optimizer.step(closures)
        else:
            optimizer.zero_grad()
            optimizer.step(closures[0])


def trained(name, mesh, dtype=torch.float64):
    model = make_model(mesh, dtype)
    take_steps(model, CASES[name](model), mesh, range(4), name, dtype)
    return weights(model)


def clipped_sgd(mesh):
    """Train with our function that clips before the step, as the training loop does."""
    model = make_model(mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(2):
        x, y = (own_part(t, mesh) for t in batch(step))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        clip_each_member_(optimizer.param_groups, 0.1)
        optimizer.step()
    return weights(model)


def collectives(mesh):
    """Count the sums over processes that a step takes: of the norm, and of clipping."""
    counts = {}
    for name in ("sam", "sam, clipped"):
        model = make_model(mesh)
        optimizer = CASES[name](model)
        with mock.patch.object(dist, "all_reduce", wraps=dist.all_reduce) as all_reduce:
            take_steps(model, optimizer, mesh, [0])
        counts[name] = all_reduce.call_count
    return counts


def half_precision(mesh):
    """Step in bfloat16; return how far SAM moved, the types, and the weights."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = make_model(mesh, torch.float32, mp_policy=policy)
    optimizer = SAM(model.parameters(), rho=0.1, lr=0.1, momentum=0.9, clip_norm=1.0)
    points = []
    x, y = (own_part(t, mesh) for t in batch(0, torch.float32))

    def closure():
        points.append(weights(model))
        logits = model(x)
        loss = nn.functional.cross_entropy(logits.float(), y)
        loss.backward()
        return loss + 0 * (logits.dtype == torch.bfloat16)

    for _ in range(3):
        optimizer.step(closure)
    moved = [(b - a).norm() for a, b in zip(points[::2], points[1::2], strict=True)]
    types = {str(v.dtype) for s in optimizer.state.values() for v in s.values()}
    return {"moved": torch.stack(moved), "types": types, "weights": weights(model)}


def partly_sharded(mesh):
    """Step with a tensor that no process shards, and a gradient that is placed otherwise."""
    generator = torch.Generator().manual_seed(0)
    sharded, plain, target = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    sharded, plain = nn.Parameter(sharded), nn.Parameter(plain)
    if mesh is not None:
        sharded = nn.Parameter(distribute_tensor(sharded.detach(), mesh, [Shard(0)]))
    optimizer = SAM([sharded, plain], rho=0.3, lr=0.1, clip_norm=0.5)

    def closure():
        gradient = 2 * (sharded.full_tensor() if mesh is not None else sharded).detach()
        if mesh is not None:
            gradient = distribute_tensor(gradient, mesh, [Replicate()])
        sharded.grad = gradient
        plain.grad = 3 * (plain.detach() - target) ** 2
        return plain.sum()

    for _ in range(3):
        optimizer.step(closure)
    whole = sharded.full_tensor() if mesh is not None else sharded
    return torch.cat([whole, plain]).detach()


def infinite_gradient(mesh):
    """Scale the loss; in the last process the second step's gradient is infinite."""
    model = make_model(mesh, torch.float32)
    optimizer = SAM(model.parameters(), rho=0.1, lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    after = []
    for step in range(3):
        x, y = (own_part(t, mesh) for t in batch(step, torch.float32))
        last = dist.get_rank() == mesh.size() - 1

        def closure(x=x, y=y, factor=float("inf") if last and step == 1 else 1.0):
            loss = nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss * factor).backward()
            return loss

        optimizer.step(closure, scaler=scaler)
        scaler.update()
        after.append(weights(model))
    return {"weights": torch.stack(after), "scale": scaler.get_scale()}


def controlled(mesh):
    """Let the radius be steered; return what it became at each look."""
    model = make_model(mesh)
    optimizer = CASES["sam"](model)
    settings = Radius(sensor="gap", every=1, start=0.0, dead_band=0.0, guard=math.inf)
    control = RadiusControl(model, optimizer, batch(9, rows=40), 8, settings)
    radii = []
    for step in range(8):
        take_steps(model, optimizer, mesh, [step])
        control.step()
        radii.append(optimizer.param_groups[0]["rho"])
    return radii


def watched(mesh, folder):
    """Watch a sharded network; return the rows of this process."""
    model = make_model(mesh)
    optimizer = CASES["csam"](model)
    processes = ALONE if mesh is None else join(torch.device("cpu"))
    data = batch(20, rows=37)
    with Watch(
        *(model, None, data, batch(21, rows=9), folder),
        measure="critical_sharpness",
        chunk=2,
        every=2,
        processes=processes,
    ) as watch:
        for step in range(4):
            take_steps(model, optimizer, mesh, [step])
            watch.step()
    return {"last": watch.last, "weights": weights(model), "modes": model.training}


CURVATURES = (
    *("gn_sharpness", "hessian_sharpness", "kappa_min", "jacobian_norm"),
    *("certificate", "sam_theory"),
)


def gathered(mesh, folder):
    """Watch curvature of a sharded network, on weights that are gathered for it."""
    model = make_model(mesh)
    optimizer = CASES["csam"](model)
    called = []
    model[3].register_forward_hook(lambda *_: called.append(1))  # of the user, kept
    with Watch(
        *(model, None, batch(20, rows=37), batch(21, rows=9), folder),
        measure=CURVATURES,
        rtol=1e-8,
        every=2,
        processes=ALONE if mesh is None else join(torch.device("cpu")),
    ) as watch:
        for step in range(4):
            take_steps(model, optimizer, mesh, [step])
            called.clear()
            watch.step()
    return {"weights": weights(model), "called": len(called), "sharded": any_sharded(model)}


def any_sharded(model):
    return any(isinstance(p, DTensor) for p in model.parameters())


class Odd(nn.Module):
    """Tied weights, a module used twice, a tensor that is not sharded, BatchNorm."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.again = self.first
        self.norm = nn.BatchNorm1d(4)
        self.last = nn.Linear(4, 4, bias=False)
        self.last.weight = self.first.weight
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return self.last(self.norm(self.again(self.first(x))) * self.scale)


def plain_copies(mesh):
    """Copy an odd network, move its weights and buffers, and gather them again."""
    torch.manual_seed(0)
    model = Odd().double()
    x = torch.randn(6, 4, dtype=torch.float64)
    wanted = model.eval()(x).detach()
    fully_shard(model, mesh=mesh, ignored_params={model.scale})
    copied = GatheredModel(model)
    same = torch.allclose(copied.model(x), wanted)

    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1.5)
        model.norm.running_mean.add_(0.1)
    moved = model(x).detach()
    stale = torch.allclose(copied.model(x), moved)
    copied.refresh()
    plain = copied.model
    return {
        "same": same and torch.allclose(plain(x), moved) and not stale,
        "tied": plain.last.weight is plain.first.weight and plain.again is plain.first,
        "shared": plain.scale is model.scale and plain.norm.running_mean is model.norm.running_mean,
        "classes": [type(m).__name__ for m in plain.modules()],
        "sharded": any_sharded(model) and not any_sharded(plain),
    }


def too_many(mesh):
    """Ask for the curvature of more weights than are gathered; return the row and the warning."""
    model = make_model(mesh)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        watch = Watch(
            *(model, None, batch(20, rows=37)),
            measure=("gn_sharpness", "certificate"),
            processes=join(torch.device("cpu")),
            gather=10,
        )
    sentences = [str(w.message) for w in caught if "needs all weights" in str(w.message)]
    return {"row": watch.last, "sentences": sentences}


def critical(mesh):
    """Measure critical sharpness on own shares; gradients at hand stay as they are."""
    model = make_model(mesh)
    x, y = batch(5, rows=37)
    if mesh is not None:
        x, y = (t.tensor_split(mesh.size())[dist.get_rank()] for t in (x, y))
    nn.functional.cross_entropy(model(x), y).backward()
    before = [p.grad for p in model.parameters()]
    found = critical_sharpness(model, (x, y), chunk=4)
    same = all(p.grad is g for p, g in zip(model.parameters(), before, strict=True))
    along = critical_sharpness(model, (x, y), update=before, chunk=4)

    # All weights in every process, and a share of the data.
    group = None if mesh is None else mesh.get_group()
    copied = critical_sharpness(make_model(None), (x, y), group=group)
    return {
        "value": found.value,
        "same": same,
        "along": along.value,
        "copied": copied.value,
    }


def refusals(mesh):
    """Return the sentences of what does not work on shards."""
    model = make_model(mesh)
    sentences = []
    for attempt in (
        lambda: BulkSGD(model.parameters(), lr=0.1, k=1, tracker=mock.Mock()),
        lambda: Watch(model, None, batch(0), measure="critical_sharpness"),
        lambda: critical_sharpness(
            model, batch(0), update=[p.full_tensor() for p in model.parameters()]
        ),
    ):
        try:
            attempt()
        except ValueError as error:
            sentences.append(str(error))
    return sentences


def local_bytes(mesh):
    """Return the bytes of parameters and optimizer state that this process holds."""
    model = make_model(mesh)
    optimizer = CASES["vasso"](model)
    take_steps(model, optimizer, mesh, [0])
    tensors = [*model.parameters(), *(v for s in optimizer.state.values() for v in s.values())]
    return sum((t.to_local() if isinstance(t, DTensor) else t).nbytes for t in tensors)


def state_of(model, optimizer):
    return {
        "model": get_model_state_dict(model),
        "optimizer": get_optimizer_state_dict(model, optimizer),
    }


def save_half_way(name, mesh, folder):
    model = make_model(mesh)
    optimizer = CASES[name](model)
    take_steps(model, optimizer, mesh, range(2), name)
    dcp.save(state_of(model, optimizer), checkpoint_id=folder / name.replace(", ", "-"))


def go_on(name, mesh, folder):
    """Load what other processes saved, and take the steps that are left."""
    model = make_model(mesh)
    optimizer = CASES[name](model)
    state = state_of(model, optimizer)
    dcp.load(state, checkpoint_id=folder / name.replace(", ", "-"))
    set_model_state_dict(model, state["model"])
    set_optimizer_state_dict(model, optimizer, state["optimizer"])
    take_steps(model, optimizer, mesh, range(2, 4), name)
    return weights(model)


def checks(mesh, folder):
    """Do all that two processes do."""
    found = {name: trained(name, mesh) for name in CASES}
    found["float32"] = trained("csam", mesh, torch.float32)
    found["clipped sgd"] = clipped_sgd(mesh)
    found["collectives"] = collectives(mesh)
    found["partly sharded"] = partly_sharded(mesh)
    found["half precision"] = half_precision(mesh)
    found["infinite"] = infinite_gradient(mesh)
    found["controlled"] = controlled(mesh)
    found["critical"] = critical(mesh)
    found["watched"] = watched(mesh, folder / f"watched{mesh.size()}")
    found["gathered"] = gathered(mesh, folder / f"gathered{mesh.size()}")
    found["copies"] = plain_copies(mesh)
    found["too many"] = too_many(mesh)
    found["refusals"] = refusals(mesh)
    found["bytes"] = local_bytes(mesh)
    return found


def main(rank, world, folder):
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    folder = Path(folder)
    meeting = f"file://{folder}/meeting{world}"
    dist.init_process_group("gloo", meeting, rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", (world,))

    if world == 2:
        found = checks(mesh, folder)
        for name in RESUMED:
            save_half_way(name, mesh, folder)
    else:
        found = {name: trained(name, mesh) for name in ("sam", "csam", "muon")}
        found["watched"] = watched(mesh, folder / "watched4")
        found["bytes"] = local_bytes(mesh)
        found["resumed"] = {name: go_on(name, mesh, folder) for name in RESUMED}
        hybrid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
        found["hybrid"] = trained("sam", hybrid)

    torch.save(found, folder / f"world{world}-rank{rank}.pt")
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads may abort an interpreter that ends in order, with plain SGD too
