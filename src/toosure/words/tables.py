"""Which words there are, and where their methods live. To add a method, add a line."""

# Plain text, so that reading a run folder loads none of it.
TABLES: dict[str, dict[str, str]] = {
    "optimizer": {
        "sgd": "torch.optim:SGD",
        "gd": "torch.optim:SGD",
        "adamw": "torch.optim:AdamW",
        "muon": "toosure.optim:Muon",
        "sam": "toosure.optim:SAM",
        "csam": "toosure.optim:CSAM",
        "asam": "toosure.optim:ASAM",
        "vasso": "toosure.optim:VASSO",
        "bsam": "toosure.optim:BSAM",
        "bulksgd": "toosure.optim:BulkSGD",
    },
    "loss": {
        "ce": "torch.nn:CrossEntropyLoss",
        "mse": "toosure.losses:MSELoss",
        "brier": "toosure.losses:BrierLoss",
        "focal": "toosure.losses:FocalLoss",
        "flsd53": "toosure.losses:FLSD53Loss",
        "dual_focal": "toosure.losses:DualFocalLoss",
        "inverse_focal": "toosure.losses:InverseFocalLoss",
        "label_smoothing": "toosure.losses:LabelSmoothingLoss",
        "entropy": "toosure.losses:EntropyLoss",
        "mbls": "toosure.losses:MbLSLoss",
        "acls": "toosure.losses:ACLSLoss",
        "mdca": "toosure.losses:MDCALoss",
        "dca": "toosure.losses:DCALoss",
        "cpc": "toosure.losses:CPCLoss",
        "mmce": "toosure.losses:MMCELoss",
        "skce": "toosure.losses:SKCELoss",
        "dece": "toosure.losses:DECELoss",
        "sece": "toosure.losses:SECELoss",
        "soft_binned_ece": "toosure.losses:SoftBinnedECELoss",
    },
    "objective": {
        "calmo": "toosure.objectives:CalMO",
        "margin_tail": "toosure.objectives:MarginTail",
        "adafocal": "toosure.objectives:AdaFocal",
        "crl": "toosure.objectives:CRL",
        "mixup": "toosure.objectives:Mixup",
        "mit": "toosure.objectives:MIT",
        "ar_adals": "toosure.objectives:ARAdaLS",
        "ccat": "toosure.objectives:CCAT",
        "balcal": "toosure.objectives:BalCAL",
        "meta_smoothing": "toosure.objectives:MetaSmoothing",
        "gamma_net": "toosure.objectives:GammaNet",
    },
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
    "calibrator": {
        "temperature": "toosure.posthoc:Temperature",
        "ensemble_temperature": "toosure.posthoc:EnsembleTemperature",
        "vector": "toosure.posthoc:Vector",
        "matrix": "toosure.posthoc:Matrix",
        "dirichlet": "toosure.posthoc:Dirichlet",
        "platt": "toosure.posthoc:Platt",
        "beta": "toosure.posthoc:Beta",
        "histogram": "toosure.posthoc:HistogramBinning",
        "isotonic": "toosure.posthoc:Isotonic",
        "rank_isotonic": "toosure.posthoc:RankIsotonic",
        "bbq": "toosure.posthoc:BBQ",
    },
    "schedule": {
        "constant": "toosure.optim.schedules:Constant",
        "step": "toosure.optim.schedules:Step",
        "cosine": "toosure.optim.schedules:Cosine",
    },
}

# What the caller hands over, and a word therefore cannot say.
GIVEN: dict[str, set[str]] = {
    "optimizer": {"data_size", "seed"},
    "data": {"root", "download", "workers"},
    "model": {"inputs", "classes"},
    "objective": {"loss", "reduction", "seed", "training_steps"},
}

# Arguments of torch's own methods that change the time or the sign, not the method.
UNSAID = {"maximize", "foreach", "differentiable", "capturable", "fused", "size_average", "reduce"}

# What torch's docstrings do not say: the summary and the reference.
ABOUT: dict[str, tuple[str, str]] = {
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
