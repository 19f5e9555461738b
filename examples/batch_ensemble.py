"""BatchEnsemble in your own loop: four members that share their matrices, judged as a mixture."""

import torch
from torch.utils.data import DataLoader, TensorDataset

from toosure import Watch
from toosure.data import digits
from toosure.ensembles import BatchEnsemble
from toosure.models import mlp

torch.manual_seed(0)
data = digits(train=600, val=400)
model = mlp(inputs=data.inputs, classes=10, width=64)
ensemble = BatchEnsemble(members=4)
ensemble.setup(model, data)  # converts the network, in place

(fast,) = ensemble.parameters()  # fast weights learn at half the rate
others = [p for p in model.parameters() if all(p is not q for q in fast["params"])]
groups = [{"params": others}, {"params": fast["params"], "lr": 0.05}]
optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
loader = DataLoader(TensorDataset(data.train.x, data.train.y), batch_size=50, shuffle=True)

watch = Watch(model, None, data.train, data.val, objective=ensemble, measure=(), every=60)
for _ in range(10):
    for x, y in loader:
        prepared = ensemble.prepare(model, (x, y, torch.arange(len(y))))
        optimizer.zero_grad()
        ensemble(model, prepared).backward()
        optimizer.step()
        watch.step()

row = watch.last
print(f"NLL of a member {row['objective/member_nll']:.4f}, of the mixture {row['val/nll']:.4f}")
print(f"two members differ on {100 * row['objective/disagreement']:.1f} % of the rows")
