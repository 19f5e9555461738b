"""Slow, obvious versions of every optimizer, on plain lists of tensors, and small problems."""

from copy import deepcopy

import torch
import torch.nn.functional as F
from torch import nn

from toosure.data.seeds import derive_seed


def make_mlp(seed=0, dtype=torch.float64):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 4)).to(dtype)


def make_cnn(seed=0, dtype=torch.float64):
    """Convolutions of both kinds of bias, BatchNorm, a head: what ResNets are made of."""
    torch.manual_seed(seed)
    body = [nn.Conv2d(2, 3, 3, padding=1, bias=False), nn.BatchNorm2d(3), nn.ReLU()]
    body += [nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 4)]
    return nn.Sequential(*body).to(dtype)


SHAPES = {"mlp": (6,), "cnn": (2, 4, 4)}
MODELS = {"mlp": make_mlp, "cnn": make_cnn}


def batches(kind, steps=50, size=12, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        inputs = torch.randn(size, *SHAPES[kind], generator=generator, dtype=dtype)
        yield inputs, torch.randint(4, (size,), generator=generator)


def train(model, optimizer, criterion, data):
    for inputs, labels in data:

        def closure(inputs=inputs, labels=labels):
            optimizer.zero_grad()
            loss = criterion(model(inputs), labels)
            loss.backward()
            return loss

        optimizer.step(closure)
    return model


def gradient_at(model, shifts, inputs, labels, criterion):
    """The gradient at w + shifts, found on a copy: the model and its statistics stay."""
    copy = deepcopy(model)
    with torch.no_grad():
        for p, shift in zip(copy.parameters(), shifts, strict=True):
            p += shift
    return torch.autograd.grad(criterion(copy(inputs), labels), list(copy.parameters()))


def norm_of(tensors):
    return torch.sqrt(sum((t**2).sum() for t in tensors))


def sam_shift(params, grads, state, rho):
    return [rho * g / (norm_of(grads) + 1e-12) for g in grads]


def asam_shift(params, grads, state, rho, eta):
    sizes = [p.abs() + eta for p in params]
    total = norm_of([t * g for t, g in zip(sizes, grads, strict=True)])
    return [rho * t * t * g / (total + 1e-12) for t, g in zip(sizes, grads, strict=True)]


def vasso_shift(params, grads, state, rho, theta):
    before = state.get("d", grads)
    state["d"] = [(1 - theta) * d + theta * g for d, g in zip(before, grads, strict=True)]
    return sam_shift(params, state["d"], state, rho)


def csam_loss(gamma):
    def loss(logits, labels):
        total = 0.0
        for row, label in zip(logits, labels, strict=True):  # Eq. 4, one example at a time
            p = row.softmax(0)[label]
            total = total - torch.log(p) * (1 if p <= 0.5 else (1 + p) ** (-gamma))
        return total / len(labels)

    return loss


def slow_sam(model, data, shift, perturbed_loss=F.cross_entropy, **settings):
    """SAM with SGD of lr .1, momentum .9 and weight decay .01, written out."""
    params, state = list(model.parameters()), {}
    velocity = None
    for inputs, labels in data:
        loss = F.cross_entropy(model(inputs), labels)  # also moves the BatchNorm statistics
        grads = torch.autograd.grad(loss, params)
        with torch.no_grad():
            shifts = shift(params, grads, state, **settings)
        found = gradient_at(model, shifts, inputs, labels, perturbed_loss)
        with torch.no_grad():
            full = [g + 0.01 * p for g, p in zip(found, params, strict=True)]
            old = velocity or [torch.zeros_like(p) for p in params]
            velocity = [0.9 * v + g for v, g in zip(old, full, strict=True)]
            for p, v in zip(params, velocity, strict=True):
                p -= 0.1 * v
    return model


def slow_bsam(model, data, lr, data_size, rho, seed, parts, prior=40.0, damping=0.1):
    params = list(model.parameters())
    mean, scale = [torch.zeros_like(p) for p in params], [torch.ones_like(p) for p in params]
    delta, draws = prior / data_size, 0
    for inputs, labels in data:
        h_sum, q_sum = [0.0] * len(params), [0.0] * len(params)
        for x, y in zip(inputs.chunk(parts), labels.chunk(parts), strict=True):
            generator = torch.Generator().manual_seed(derive_seed(seed, draws))
            draws += 1
            noise = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in params]
            shifts = [n / torch.sqrt(data_size * s) for n, s in zip(noise, scale, strict=True)]
            g = gradient_at(model, shifts, x, y, F.cross_entropy)
            shifts = [rho * gi / s for gi, s in zip(g, scale, strict=True)]
            h = gradient_at(model, shifts, x, y, F.cross_entropy)
            for i, s in enumerate(scale):
                h_sum[i] = h_sum[i] + h[i] / parts
                q_sum[i] = q_sum[i] + torch.sqrt(s) * g[i].abs() / parts
        with torch.no_grad():
            for i, p in enumerate(params):
                mean[i] = 0.9 * mean[i] + 0.1 * (h_sum[i] + delta * p)
                p -= lr * mean[i] / scale[i]
                scale[i] = 0.999 * scale[i] + 0.001 * (q_sum[i] + damping + delta)
    return model, scale


def dense_hessian(model, inputs, labels):
    """The whole Hessian of the loss, row by row."""
    params = list(model.parameters())
    grads = torch.autograd.grad(F.cross_entropy(model(inputs), labels), params, create_graph=True)
    flat = torch.cat([g.flatten() for g in grads])
    unit = torch.eye(len(flat), dtype=flat.dtype)  # one row of the Hessian for each
    rows = torch.autograd.grad(flat, params, unit, is_grads_batched=True)
    return torch.cat([row.flatten(1) for row in rows], 1)


def largest_difference(one, two):
    pairs = zip(one.state_dict().values(), two.state_dict().values(), strict=True)
    return max((a.double() - b.double()).abs().max().item() for a, b in pairs)
