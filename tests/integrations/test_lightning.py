"""The callback in Lightning: steps, rows and weights of our own loop, checkpoints, failures."""

from itertools import islice

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from toosure import Run
from toosure.optim import CSAM, SAM

lightning = pytest.importorskip("lightning")

from loops import BATCH, CE, Net, loader, own_loop, problem, rows_of, same_weights, steps_of  # noqa: E402

from toosure.integrations.lightning import WatchCallback  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of Lightning: few workers, few batches


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.2, momentum=0.9)


def sam(parameters):
    return SAM(parameters, rho=0.1, lr=0.2)


class Module(lightning.LightningModule):
    def __init__(self, make_optimizer=sgd, fail_at=None):
        super().__init__()
        self.net = Net()
        self.make_optimizer = make_optimizer
        self.fail_at = fail_at
        self.criterion = CE

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        if self.trainer.global_step == self.fail_at:
            raise ZeroDivisionError("on purpose")
        x, y = batch
        return self.criterion(self.net(x), y)

    def validation_step(self, batch, index):
        self.net(batch[0])

    def configure_optimizers(self):
        optimizer = self.make_optimizer(self.net.parameters())
        if isinstance(optimizer, CSAM):
            self.criterion = optimizer.criterion(CE)
        return optimizer


def fit(module, callbacks, folder, path=None, train=None, **options):
    quiet = {
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "accelerator": "cpu",
        "default_root_dir": folder,
    }
    options = {"max_epochs": 2, "enable_checkpointing": False, **options}
    trainer = lightning.Trainer(**quiet, **options, callbacks=callbacks)
    trainer.fit(module, train or loader(), loader(), ckpt_path=path)
    return trainer


def callback(folder, **options):
    return WatchCallback(run=folder, every=3, measure="none", **{"val": problem(), **options})


@pytest.mark.parametrize("make_optimizer", [sgd, sam])
def test_weights_and_rows_are_those_of_our_own_loop(make_optimizer, tmp_path):
    module = Module(make_optimizer)
    trainer = fit(module, [callback(tmp_path / "a")], tmp_path)
    calls = module.net.calls
    own = own_loop(tmp_path / "b", make_optimizer)
    assert same_weights(module.net, own)
    assert rows_of(tmp_path / "a") == rows_of(tmp_path / "b")
    assert steps_of(tmp_path / "a") == [0, 3, 6, 9, 12, 15, 16] and trainer.global_step == 16
    assert calls == (32 if make_optimizer is sam else 16)
    assert Run(tmp_path / "a").status == "ended"


def test_steps_are_those_of_the_optimizer_with_accumulation(tmp_path):
    module = Module()
    fit(module, [callback(tmp_path / "a", train=problem())], tmp_path, accumulate_grad_batches=3)
    assert steps_of(tmp_path / "a") == [0, 3, 6]  # 8 batches: 3 + 3 + 2, twice


def test_sam_refuses_accumulation_with_the_remedy(tmp_path):
    with pytest.raises(ValueError, match=r"last micro-batch only.*set accumulate_grad_batches=1"):
        fit(Module(sam), [callback(tmp_path / "a")], tmp_path, accumulate_grad_batches=2)


class WithoutForward(Module):
    forward = lightning.LightningModule.forward


def test_a_module_without_forward_is_told_to_name_its_network(tmp_path):
    with pytest.raises(ValueError, match=r"no forward.*WatchCallback\(network="):
        fit(WithoutForward(), [WatchCallback(run=tmp_path / "a")], tmp_path)
    watch = WatchCallback(run=tmp_path / "b", network="net", measure="none")
    fit(WithoutForward(), [watch], tmp_path)
    assert "train/ece" in Run(tmp_path / "b").last

    module = WithoutForward()
    module.forward = module.net.forward
    fit(module, [WatchCallback(run=tmp_path / "c", measure="none")], tmp_path)
    assert "train/ece" in Run(tmp_path / "c").last


def test_csam_and_bf16(tmp_path):
    module = Module(lambda p: CSAM(p, rho=0.1, gamma=1.0, lr=0.2))
    watch = callback(tmp_path / "a", network="net", loss=CE)
    fit(module, [watch], tmp_path, precision="bf16-mixed", max_epochs=1)
    assert steps_of(tmp_path / "a") == [0, 3, 6, 8] and module.net.calls == 16
    assert watch.watch.closed and watch.watch.last["lr"] == 0.2


def test_manual_optimisation_counts_too(tmp_path):
    class Manual(Module):
        automatic_optimization = False

        def training_step(self, batch, index):
            optimizer = self.optimizers(use_pl_optimizer=False)
            optimizer.zero_grad()
            self.manual_backward(CE(self.net(batch[0]), batch[1]))
            optimizer.step()

    trainer = fit(Manual(), [callback(tmp_path / "a")], tmp_path, max_epochs=1)
    assert trainer.global_step == 0 and steps_of(tmp_path / "a") == [0, 3, 6, 8]


def test_a_run_that_goes_on_from_a_checkpoint_has_no_row_twice(tmp_path):
    whole = Module()
    fit(whole, [callback(tmp_path / "whole")], tmp_path, max_epochs=3)

    checkpoint = lightning.pytorch.callbacks.ModelCheckpoint(
        tmp_path / "checkpoints", every_n_train_steps=8, save_top_k=-1, filename="{step}"
    )
    on = {"enable_checkpointing": True, "max_epochs": 3}
    with pytest.raises(ZeroDivisionError):
        fit(Module(fail_at=13), [callback(tmp_path / "a"), checkpoint], tmp_path, **on)
    run = Run(tmp_path / "a")
    assert (run.status, run.outcome["message"]) == ("failed", "on purpose")
    assert steps_of(tmp_path / "a") == [0, 3, 6, 9, 12]

    module = Module()
    path = tmp_path / "checkpoints" / "step=8.ckpt"
    fit(module, [callback(tmp_path / "a")], tmp_path, path=path, max_epochs=3)
    assert same_weights(module.net, whole.net)
    assert rows_of(tmp_path / "a") == rows_of(tmp_path / "whole")

    bare = lightning.pytorch.callbacks.ModelCheckpoint(tmp_path / "bare", every_n_train_steps=4)
    fit(Module(), [bare], tmp_path, enable_checkpointing=True, max_epochs=1)
    (path,) = (tmp_path / "bare").glob("*.ckpt")
    with pytest.raises(ValueError, match="goes on at step 8, but its checkpoint holds no state"):
        fit(Module(), [callback(tmp_path / "b")], tmp_path, path=path)


class Resumable(DataLoader):
    """A loader that goes on after the batches it has given, as Lightning asks it to."""

    skipped = 0  # batches, at the next pass
    given = 0  # batches of this pass

    def state_dict(self):
        return {"given": self.given}

    def load_state_dict(self, state):
        self.skipped = state["given"]

    def __iter__(self):
        self.given = self.skipped
        self.skipped = 0
        for batch in islice(super().__iter__(), self.given, None):
            self.given += 1
            yield batch


@pytest.mark.parametrize("resumable", [True, False])
def test_going_on_in_the_middle_of_an_epoch(resumable, tmp_path):
    """Rows and steps are right either way; the batches are those that Lightning's loader gives.

    A loader without a state begins its epoch again: after 10 steps of 8 a pass come batches 0 to 5.
    """

    def train():
        return Resumable(TensorDataset(*problem()), batch_size=BATCH) if resumable else loader()

    whole = Module()
    fit(whole, [callback(tmp_path / "whole")], tmp_path, train=train(), max_epochs=3)
    checkpoint = lightning.pytorch.callbacks.ModelCheckpoint(
        tmp_path / "checkpoints", every_n_train_steps=5, save_top_k=-1, filename="{step}"
    )
    on = {"enable_checkpointing": True, "max_epochs": 3, "train": train()}
    with pytest.raises(ZeroDivisionError):
        fit(Module(fail_at=13), [callback(tmp_path / "a"), checkpoint], tmp_path, **on)

    module = Module()
    path = tmp_path / "checkpoints" / "step=10.ckpt"
    options = {"path": path, "train": train(), "max_epochs": 3}
    fit(module, [callback(tmp_path / "a")], tmp_path, **options)
    assert steps_of(tmp_path / "a") == [0, 3, 6, 9, 12, 15, 18, 21, 24]
    assert rows_of(tmp_path / "a")[:4] == rows_of(tmp_path / "whole")[:4]
    assert same_weights(module.net, whole.net) is resumable
    assert (rows_of(tmp_path / "a") == rows_of(tmp_path / "whole")) is resumable
    if resumable:
        return

    own, batches = Net(), list(loader())
    optimizer = sgd(own.parameters())
    for x, y in [*batches, *batches[:2], *batches[:6], *batches]:
        optimizer.zero_grad()
        CE(own(x), y).backward()
        optimizer.step()
    assert same_weights(module.net, own)


def test_without_ddp_only_the_first_process_measures():
    class Second:
        model = None  # of a strategy that shards the module
        is_global_zero = False
        accumulate_grad_batches = 1
        global_step = 0

        def __init__(self, module):
            self.optimizers = [sgd(module.parameters())]

    module, watch = Module(), WatchCallback(measure="none")
    trainer = Second(module)
    watch.on_train_start(trainer, module)
    trainer.optimizers[0].step()
    watch.on_train_end(trainer, module)
    assert watch.watch is None and watch.state_dict() == {}
