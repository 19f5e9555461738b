"""What two processes of one group train, each framework with its callback.

The test starts this file twice, with the environment that torchrun would set, and passes a folder
and the name of a loop. Each process writes what it ended with to `RANK.json` and `RANK.pt`.
"""

import json
import os
import sys
import warnings
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))


def with_lightning(folder):
    """Train 4 steps of two batches of 8; return the callback, the network and the steps taken."""
    import test_lightning as loops

    watch = loops.callback(folder / "run")
    module = loops.Module()
    options = {"strategy": "ddp", "devices": 2, "max_epochs": 1}
    trainer = loops.fit(module, [watch], folder, **options)
    return watch, module.net, trainer.global_step


def with_trainer(folder):
    """The same by the Trainer of transformers, which is Accelerate's loop."""
    import test_trainer as loops
    from loops import Net

    watch = loops.callback(folder / "run")
    net = Net()
    trainer = loops.trainer_of(folder, net, loops.sgd, [watch], num_train_epochs=1)
    trainer.__class__ = loops.SAMTrainer  # batches in random order, as by default
    trainer.train()
    return watch, net, trainer.state.global_step


LOOPS = {"lightning": with_lightning, "transformers": with_trainer}


def main():
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    watch, net, steps = LOOPS[sys.argv[2]](folder)

    rank = os.environ["RANK"]
    torch.save(net.state_dict(), folder / f"{rank}.pt")
    said = {
        "watches": watch.watch is not None,
        "steps": steps,
        "backend": torch.distributed.get_backend(),
        "processes": torch.distributed.get_world_size(),
    }
    (folder / f"{rank}.json").write_text(json.dumps(said))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
