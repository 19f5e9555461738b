import pytest
import torch

from toosure import RunConfig
from toosure.train import train
from toosure.train.check_settings import check_settings
from toosure.words.method import table_of

SMALL = {"data": "digits:train=60,val=40", "steps": 2}
REFUSED = {
    "model mlp:width=-4: an mlp needs": {"model": "mlp:width=-4"},
    "model mlp:width=10{20}: so large a network": {"model": f"mlp:width={10**20}"},
    "model mlp:depth=10{9}: depth must be at most 10,000": {"model": f"mlp:depth={10**9}"},
    "model vit:patch=10{9}: patches must tile": {"model": f"vit:patch={10**9}"},
    "model resnet20:dropout=2": {"model": "resnet20:dropout=2"},
    "model vit:patch=0": {"model": "vit:patch=0"},
    "optimizer sgd:lr=-1": {"optimizer": "sgd:lr=-1"},
    "optimizer sam:rho=-1": {"optimizer": "sam:rho=-1,lr=0.1"},
    "optimizer sam:lr=-1": {"optimizer": "sam:base=sgd,lr=-1"},
    "optimizer muon:lr=-1": {"optimizer": "muon:lr=-1"},
    "loss focal:gamma=-3": {"loss": "focal:gamma=-3"},
    "objective mixup:alpha=-1": {"objective": "mixup:alpha=-1"},
    "objective gamma_net:virtual_lr=-1": {"objective": "gamma_net:virtual_lr=-1"},
    "average swa:start=2": {"average": "ema+swa:start=2"},
    "control radius": {"control": "radius"},  # of SGD, which has no radius
    "control radius:weights=ema: .*add --average ema": {
        "optimizer": "sam:lr=0.1",
        "control": "radius:weights=ema",
    },
    "control radius:return_from=0.9: .*give a batch size": {
        "optimizer": "sam:lr=0.1",
        "control": "radius:return_from=0.9",
        "batch": None,
    },
    "control radius: warm-up ends at 100%": {
        "optimizer": "sam:lr=0.1",
        "control": "radius",
        "schedule": "cosine:warmup=2",
    },
}


@pytest.mark.parametrize("said", REFUSED)
def test_a_refused_setting_leaves_no_folder(said, tmp_path):
    config = RunConfig.of({**SMALL, **REFUSED[said]})
    with pytest.raises(ValueError, match=said):
        train(config, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("kind", ["model", "optimizer", "loss", "objective"])
def test_every_method_passes_with_its_defaults(kind):
    state = torch.get_rng_state()
    for name in table_of(kind):
        rate = ":lr=0.1" if kind == "optimizer" else ""
        check_settings(RunConfig.of({**SMALL, kind: name + rate}))
    assert torch.equal(torch.get_rng_state(), state)


def made_by_user(*arguments, **settings):
    raise AssertionError("built before the run")


def test_a_part_of_the_users_own_is_left_to_the_run():
    own = f"{__name__}:made_by_user"
    check_settings(RunConfig.of({**SMALL, "model": own}))
    check_settings(RunConfig.of({**SMALL, "loss": own}))
    check_settings(RunConfig.of({**SMALL, "objective": own}))
    check_settings(RunConfig.of({**SMALL, "optimizer": own}))


def test_patches_that_tile_other_images_than_the_default_ones():
    check_settings(RunConfig.of({**SMALL, "model": "vit:patch=7"}))  # for the 28 pixels of MNIST


def cross_entropy_times(logits, labels, factor=1.0):
    return factor * torch.nn.functional.cross_entropy(logits, labels)


class NotALoss:
    """Can be made, but not called."""


def test_a_plain_function_of_logits_and_labels_is_a_loss(tmp_path):
    small = {**SMALL, "every": 1, "measure": ()}
    ours = train(RunConfig.of({**small, "loss": "ce"}), tmp_path)
    for loss in (f"{__name__}:cross_entropy_times", "torch.nn.functional:cross_entropy"):
        own = train(RunConfig.of({**small, "loss": loss}), tmp_path)
        assert own.rows[-1]["train/loss"] == ours.rows[-1]["train/loss"]

    twice = train(
        RunConfig.of({**small, "loss": f"{__name__}:cross_entropy_times,factor=2.0"}), tmp_path
    )
    assert twice.rows[0]["train/loss"] == pytest.approx(2 * ours.rows[0]["train/loss"])


def test_what_is_no_module_is_no_network(tmp_path):
    with pytest.raises(ValueError, match="makes a NotALoss, not a network: name a class"):
        train(RunConfig.of({**SMALL, "model": f"{__name__}:NotALoss"}), tmp_path)


def test_what_cannot_be_called_is_no_loss(tmp_path):
    with pytest.raises(ValueError, match="makes a NotALoss, which cannot be called with"):
        train(RunConfig.of({**SMALL, "loss": f"{__name__}:NotALoss"}), tmp_path)
