"""A steered radius in the loops of frameworks looks and moves as in a loop of one's own."""

import pytest
import torch
from loops import CE, Net, loader, problem

from toosure.control import Radius, RadiusControl
from toosure.optim import SAM

pytestmark = pytest.mark.filterwarnings("ignore")  # of the frameworks: few workers, and others

EPOCHS = 3
STEPS = EPOCHS * len(loader())
X, Y = problem(200)
HELD_OUT = (X[64:104], Y[64:104])


def control_of(net, optimizer):
    """Without `every`: looks are spaced by the cost of the passes."""
    settings = Radius(start=0.0, dead_band=0.0)
    return RadiusControl(net, optimizer, HELD_OUT, STEPS, settings, batch=64)


def sam(parameters):
    return SAM(parameters, rho=0.1, lr=0.2)


@pytest.fixture(scope="module")
def own_looks():
    net = Net()
    optimizer = sam(net.parameters())
    control = control_of(net, optimizer)
    for _ in range(EPOCHS):
        for x, y in loader():

            def closure(x=x, y=y):
                loss = CE(net(x), y)
                loss.backward()
                return loss

            optimizer.step(closure)
            control.step()
    assert len(control.looks) >= 2
    assert control.looks[-1]["control/rho"] != 0.1
    return control.looks


def test_lightning(own_looks):
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def training_step(self, batch, index):
            return CE(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return sam(self.net.parameters())

    class Steer(lightning.Callback):
        def on_train_start(self, trainer, module):
            assert trainer.estimated_stepping_batches == STEPS
            self.control = control_of(module.net, trainer.optimizers[0])

        def on_train_batch_end(self, *arguments):
            self.control.step()

    steer = Steer()
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    trainer = lightning.Trainer(
        max_epochs=EPOCHS, accelerator="cpu", callbacks=steer, enable_checkpointing=False, **quiet
    )
    trainer.fit(Module(), loader())
    assert steer.control.looks == own_looks


def test_the_trainer_of_transformers(own_looks, tmp_path):
    """It wraps the optimizer."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from toosure.integrations.transformers import SAMTrainer

    class InOrder(SAMTrainer):
        def _get_train_sampler(self, train_dataset=None):
            return torch.utils.data.SequentialSampler(self.train_dataset)

    class Steer(transformers.TrainerCallback):
        def on_train_begin(self, arguments, state, control, model, optimizer, **given):
            assert state.max_steps == STEPS and not isinstance(optimizer, SAM)
            self.control = control_of(model, optimizer)

        def on_step_end(self, *arguments, **given):
            self.control.step()

    net, steer = Net(), Steer()
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        per_device_train_batch_size=8,
        num_train_epochs=EPOCHS,
        max_grad_norm=0.0,
        lr_scheduler_type="constant",
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    InOrder(
        model=net,
        args=arguments,
        train_dataset=[{"x": x, "labels": y} for x, y in zip(*problem(), strict=True)],
        optimizers=(sam(net.parameters()), None),
        callbacks=[steer],
    ).train()
    assert steer.control.looks == own_looks


def test_skorch(own_looks):
    skorch = pytest.importorskip("skorch")

    class Steer(skorch.callbacks.Callback):
        def on_train_begin(self, net, **given):
            self.control = control_of(net.module_, net.optimizer_)

        def on_batch_end(self, net, training=False, **given):
            if training:
                self.control.step()

    net = skorch.NeuralNet(
        Net,
        criterion=torch.nn.CrossEntropyLoss,
        optimizer=SAM,
        optimizer__rho=0.1,
        lr=0.2,
        batch_size=8,
        max_epochs=EPOCHS,
        train_split=None,
        verbose=0,
        callbacks=[("steer", Steer())],
    )
    net.fit(*(part.numpy() for part in problem()))
    assert dict(net.callbacks_)["steer"].control.looks == own_looks
