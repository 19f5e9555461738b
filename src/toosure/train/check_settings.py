"""Check that the parts of a run take their settings, before its folder is made."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn
from torch.optim import Optimizer

from toosure.config import RunConfig
from toosure.control.actuators import make_actuator
from toosure.optim.muon import hidden_and_rest
from toosure.train.averages import check_averaged
from toosure.train.build import build_criterion, build_objective, splits_matrices
from toosure.train.control import settings_of
from toosure.words import Word

OUR_PACKAGES = ("toosure", "torch")
MAX_DEPTH = 10_000  # layers; building more would take minutes
MAX_PATCH = 1024  # pixels
Part = TypeVar("Part")


def check_settings(config: RunConfig) -> None:
    """Raise if a network, loss, objective, optimizer, average or controller refuses a setting.

    Each part is built once and dropped. Parts of the user's own package are not built: that may
    take long or write files.

    >>> check_settings(RunConfig(optimizer="sam:rho=-1,lr=0.1"))
    Traceback (most recent call last):
    ValueError: optimizer sam:rho=-1,lr=0.1: rho must not be negative, and finite; got -1.0
    """
    model = config.word("model")
    if model.method.place.startswith("toosure."):
        try_to_build(model, lambda: build_without_weights(model))

    cpu = torch.device("cpu")
    loss = config.word("loss")
    if not is_ours(loss):
        return

    criterion = try_to_build(loss, lambda: build_criterion(config, cpu))
    if config.objective and is_ours(config.word("objective")):
        word = config.word("objective")
        objective = try_to_build(word, lambda: build_objective(config, criterion, cpu))
        check_averaged(config, objective)

    for average in filter(is_ours, config.averages):
        try_to_build(average, average.build)

    optimizer = config.word("optimizer")
    if is_ours(optimizer) and not getattr(optimizer.method.target, "needs_tracker", False):
        built = try_to_build(optimizer, lambda: build_on_small_network(config))
        if config.control:
            control = config.word("control")
            settings = try_to_build(control, lambda: settings_of(config))
            try_to_build(control, lambda: make_actuator(settings.actuator, built, criterion))


def is_ours(word: Word) -> bool:
    """Whether a word and the words in it, such as SAM's base, name parts of toosure or torch."""
    inner = [value for value in word.settings.values() if isinstance(value, Word)]
    package = word.method.place.partition(":")[0].partition(".")[0]
    return package in OUR_PACKAGES and all(map(is_ours, inner))


def try_to_build(word: Word, build: Callable[[], Part]) -> Part:
    """Build a part; put the word before an error."""
    try:
        return build()
    except (ValueError, TypeError) as error:
        raise ValueError(f"{word.kind} {word}: {error}") from error


def build_without_weights(word: Word) -> nn.Module:
    """Build a network for images of its default size, or of a size that its patches tile.

    The run's data are not loaded yet, so their size is not checked here.
    """
    if word.settings.get("depth", 0) > MAX_DEPTH:
        raise ValueError(f"depth must be at most {MAX_DEPTH:,}")
    patch = word.settings.get("patch") or 0
    images = {"inputs": (3, 8 * patch, 8 * patch)} if 0 < patch <= MAX_PATCH else {}
    try:
        with torch.device("meta"):  # without values: the caller's random numbers stay
            model: nn.Module = word.build(**images)
    except (RuntimeError, TypeError) as error:  # sizes beyond 64 bits
        raise ValueError("so large a network cannot be built") from error
    return model


def build_on_small_network(config: RunConfig) -> Optimizer:
    """Build the optimizer for the weights of a network of two small layers."""
    word = config.word("optimizer")
    with torch.device("meta"):  # without values: the caller's random numbers stay
        model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    parameters: list[object] = list(model.named_parameters())
    if splits_matrices(word):
        parameters = list(hidden_and_rest(model))

    optimizer: Optimizer = word.build(
        parameters, model=model, seed=config.seed, clip_norm=config.clip, data_size=100
    )
    return optimizer
