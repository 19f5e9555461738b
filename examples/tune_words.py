"""Search words with ranges and choices for high accuracy and low NLL; repeat it to add trials."""

from toosure.integrations.search_space import SearchSpace
from toosure.integrations.tune import tune

space = SearchSpace.of(
    data="digits:train=200",
    optimizer=["sgd:lr=0.05..1~log", "csam:lr=0.5,rho=0.02..0.5~log,gamma=0|0.5|1|2"],
    model="mlp:width=16..64~16",
    steps=100,
    every=50,
    measure=[],
)
result = tune(space, goals=("accuracy", "nll"), trials=6, out="runs/tune_words")

print("Pareto front: no trial is better in both")
for trial in sorted(result.best, key=lambda trial: -trial.values[0]):
    accuracy, nll = trial.values
    print(f"accuracy {accuracy:.3f}  NLL {nll:.3f}  {trial.config.optimizer}  {trial.config.model}")
