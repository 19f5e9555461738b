"""The methods of each kind: their names, and where each is defined as module:attribute.

A loss, optimizer, objective, calibrator or schedule is listed once, in the table of its package
(`toosure.losses.LOSSES` and so on): that package is imported when a word of its kind is first read.
The data sets and networks are listed here, as text.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module

PACKAGE_TABLES: dict[str, tuple[tuple[str, str], ...]] = {
    "optimizer": (("toosure.optim", "OPTIMIZERS"),),
    "loss": (("toosure.losses", "LOSSES"),),
    "objective": (("toosure.objectives", "OBJECTIVES"), ("toosure.ensembles", "ENSEMBLES")),
    "calibrator": (("toosure.posthoc", "CALIBRATORS"),),
    "schedule": (("toosure.optim.schedules", "SCHEDULES"),),
    "average": (("toosure.ensembles.averages", "AVERAGES"),),
    "control": (("toosure.control", "CONTROLS"),),
}

TEXT_TABLES: dict[str, dict[str, str]] = {
    "data": {
        "digits": "toosure.data:digits",
        "cifar10": "toosure.data:cifar10",
        "cifar100": "toosure.data:cifar100",
        "cifar10_c": "toosure.data:cifar10_c",
        "cifar100_c": "toosure.data:cifar100_c",
        "svhn": "toosure.data:svhn",
        "mnist": "toosure.data:mnist",
        "fashion_mnist": "toosure.data:fashion_mnist",
        "tiny_imagenet": "toosure.data:tiny_imagenet",
        "imagenet": "toosure.data:imagenet",
        "imagenet_c": "toosure.data:imagenet_c",
        "imagefolder": "toosure.data:imagefolder",
        "shards": "toosure.data:shards",
        "arrays": "toosure.data:arrays",
    },
    "model": {
        "mlp": "toosure.models:mlp",
        "resnet20": "toosure.models:resnet20",
        "resnet56": "toosure.models:resnet56",
        "resnet110": "toosure.models:resnet110",
        "resnet18": "toosure.models:resnet18",
        "resnet50": "toosure.models:resnet50",
        "wrn": "toosure.models:wrn",
        "wrn28_10": "toosure.models:wrn28_10",
        "pyramidnet": "toosure.models:pyramidnet",
        "pyramidnet110": "toosure.models:pyramidnet110",
        "densenet": "toosure.models:densenet",
        "densenet40": "toosure.models:densenet40",
        "densenet_bc100": "toosure.models:densenet_bc100",
        "vit": "toosure.models:vit",
        "vit_s16": "toosure.models:vit_s16",
        "vit_s32": "toosure.models:vit_s32",
    },
}

# In the order in which `toosure methods` lists them.
KINDS = (
    *("optimizer", "loss", "objective", "data", "model", "calibrator"),
    *("schedule", "average", "control"),
)


class MethodTables(Mapping[str, dict[str, str]]):
    """Map each kind of method to its names and places; a package is imported at first use.

    >>> TABLES["loss"]["focal"], TABLES["loss"]["ce"]
    ('toosure.losses:FocalLoss', 'torch.nn:CrossEntropyLoss')
    """

    def __getitem__(self, kind: str) -> dict[str, str]:
        if kind not in KINDS:
            raise KeyError(kind)
        places = dict(TEXT_TABLES.get(kind, {}))
        for package, table in PACKAGE_TABLES.get(kind, ()):
            for name, method in getattr(import_module(package), table).items():
                places.setdefault(name, place_of(method, package))
        return places

    def __contains__(self, kind: object) -> bool:
        return kind in KINDS

    def __iter__(self) -> Iterator[str]:
        return iter(KINDS)

    def __len__(self) -> int:
        return len(KINDS)


def place_of(method: type, package: str) -> str:
    """Return module:attribute of a class in a package's table, by the module that users import.

    A class from elsewhere, which a user put into the table, is named by its own module.
    """
    module = method.__module__
    if module.startswith("torch."):
        module = ".".join(module.split(".")[:2])
    elif hasattr(import_module(package), method.__name__):
        module = package
    return f"{module}:{method.__name__}"


TABLES = MethodTables()

# Arguments that the caller passes to a method of each kind: no word sets them.
INJECTED: dict[str, set[str]] = {
    "optimizer": {"data_size", "seed"},
    "data": {"root", "download", "workers"},
    "model": {"inputs", "classes"},
    "objective": {"loss", "reduction", "seed", "training_steps"},
}

# Arguments of torch's own methods that change the time or the sign, not the method.
HIDDEN = {"maximize", "foreach", "differentiable", "capturable", "fused", "size_average", "reduce"}

# The summary and the reference of torch's own methods, which their docstrings do not give.
TORCH_DOCS: dict[str, tuple[str, str]] = {
    "sgd": (
        "Take steps down the gradient of a batch, with momentum if asked (torch's SGD).",
        "Robbins and Monro (1951), A stochastic approximation method",
    ),
    "gd": (
        "Take steps down the gradient of the whole training set (torch's SGD on one full batch).",
        "Cauchy (1847), Méthode générale pour la résolution des systèmes d'équations simultanées",
    ),
    "adamw": (
        "Scale each step by running moments and decay the weights apart from it (torch's AdamW).",
        "Loshchilov and Hutter (2019), Decoupled weight decay regularization, arXiv 1711.05101",
    ),
    "ce": (
        "Take minus the log probability of the label, with label smoothing if asked (torch's).",
        "Good (1952), Rational decisions",
    ),
}
