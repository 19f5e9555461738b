"""The figures of the paper, to stand beside ours: mean±deviation over seeds, errors in points."""

PaperTable = dict[str, dict[str, str]]  # row -> column -> the figure as printed


def table(columns: str, rows: str) -> PaperTable:
    """Read rows of text: a name, then one figure per column; _ in a name stands for a space.

    >>> table("accuracy ECE", "CE 95.83±.21 2.36±.11")
    {'CE': {'accuracy': '95.83 ± .21', 'ECE': '2.36 ± .11'}}
    """
    names = [name.replace("_", " ") for name in columns.split()]
    read = {}
    for line in rows.strip().splitlines():
        name, *figures = line.split()
        texts = [figure.replace("±", " ± ") for figure in figures]
        read[name.replace("_", " ")] = dict(zip(names, texts, strict=True))
    return read


# The paper's tables disagree with each other here; the differences are not ours to settle.
CONTRADICTIONS = {
    "Mixup, CIFAR-10, WRN: ECE": "2.21 (3), 4.66 (S7)",
    "DualFocal, CIFAR-10, WRN: ECE": "1.74 (3), 4.74 (S7)",
    "SAM, CIFAR-100, WRN: AdaECE": "2.17 (S5), 4.67 (S9)",
    "ACLS, CIFAR-100, ResNet-56: ECE": "2.32 (S13), 5.88 (S15)",
    "focal, CIFAR-100, ResNet-56: ECE": "8.25 (S7), 1.85 (S16)",
    "CE, CIFAR-100, WRN: accuracy": "81.01 (S5), 81.04 (S6)",
    "CE, CIFAR-100, WRN: classwise ECE": ".21 (S5), .18 (S8)",
    "SAM, CIFAR-10, ResNet-56: ECE": ".64 (S7), 1.83 (S11), by another rho",
    "SGD against SAM, CIFAR-10, ResNet-56: ratio of ECE": "about 6 (Figure 3), 1.9 (S11)",
    "SAM raw below SGD after a temperature": "generally (Figure 3), not on CIFAR-10 (S11)",
    "CSAM, CIFAR-10, ResNet-56, rho .05: gamma of least ECE": "1 (Figure S6), 1.5 (S4)",
    "ImageNet, ViT-S/32: ECE of SAM, CSAM": "3.04, 2.88 (2); 2.47, 1.79 (S14)",
    "ImageNet, ViT-S/32: the base optimizer": "AdamW (2), SGD (S14)",
    "ImageNet, ViT-S/32: the hardest corruption": "impulse noise (2), defocus blur (S14)",
    "Lemma 1: the fall of log p_y": "rho |g|^2 / 2 (printed), rho |g| / 2 (its proof, Eq. 2)",
}

# Table 1: ResNet-18, CIFAR-10; AUROC of the test images against three other data sets.
TABLE_1 = table(
    "accuracy ECE SVHN CIFAR10-C CIFAR100-C",
    """
    SGD/Vanilla 89.18±.26 5.76±.43 83.94±.96 62.26±4.46 83.26±.71
    SGD/MC-Dropout 89.13±.18 4.39±.27 84.11±.69 57.09±2.81 82.11±.82
    SGD/Ensemble 90.88±.11 1.84±.22 86.41±.36 63.39±4.72 85.81±.17
    SAM/Vanilla 90.01±.23 3.24±.39 86.38±.39 63.32±4.77 84.83±.83
    SAM/MC-Dropout 89.49±.33 2.21±.41 83.02±.35 56.11±2.50 80.96±.55
    SAM/Ensemble 91.16±.14 1.09±.22 88.05±.21 64.03±4.95 86.84±.75
    CSAM/Vanilla 89.95±.16 2.55±.24 85.98±.42 63.49±4.74 84.87±.86
    CSAM/MC-Dropout 89.57±.21 1.52±.21 82.82±.31 56.05±2.48 80.70±.55
    CSAM/Ensemble 91.22±.17 0.86±.17 88.21±.12 64.17±4.91 86.92±.70
    """,
)

# Table 3: CIFAR-10, WRN-28-10, three seeds.
TABLE_3 = table(
    "accuracy ECE classwise_ECE AdaECE TCE AUROC",
    """
    CE 95.83±.21 2.36±.11 0.52±.01 2.04±.11 1.06±.19 98.68±.04
    FL 95.91±.02 1.16±.13 0.38±.01 1.42±.09 1.01±.28 99.04±.01
    DualFocal 95.73±.10 1.74±.09 0.48±.02 1.64±.07 1.00±.09 99.26±.02
    AdaFocal 95.78±.06 0.91±.14 0.35±.01 0.65±.04 0.97±.08 99.10±.04
    Mixup 96.34±.10 2.21±1.11 0.45±.21 1.63±1.04 1.33±.25 99.12±.02
    MIT-L 96.56±.16 1.05±.02 0.31±.01 1.05±.05 0.57±.11 99.12±.03
    MMCE 95.94±.02 2.47±.04 0.54±.02 2.42±.04 1.15±.18 98.65±.05
    BatchEnsemble 95.92±.11 1.91±.06 0.45±.01 1.85±.03 0.41±.01 98.96±.01
    Rank1-BNN 95.50±.14 1.92±.29 0.45±.06 1.94±.29 0.51±.03 98.81±.12
    VI 94.33±.10 3.14±.12 0.69±.03 3.06±.15 0.76±.08 98.28±.07
    MIMO 95.96±.06 0.88±.06 0.33±.01 0.73±.08 0.74±.20 99.16±.01
    ACLS 95.91±.08 2.48±.07 0.55±.01 2.45±.07 1.09±.08 98.62±.01
    BalCAL 96.23±.09 1.89±.07 0.42±.01 1.93±.01 0.79±.05 98.77±.44
    bSAM 96.45±.03 1.82±.10 0.43±.02 1.78±.10 0.70±.23 98.95±.06
    SAM 96.91±.14 0.86±.13 0.26±.02 0.84±.14 0.52±.09 99.30±.02
    CSAM 96.97±.05 0.50±.03 0.23±.01 0.48±.03 0.47±.05 99.53±.02
    """,
)

# Table S5: CIFAR-100, WRN-28-10, three seeds.
TABLE_S5 = table(
    "accuracy ECE classwise_ECE AdaECE TCE AUROC",
    """
    CE 81.01±.11 3.95±.28 0.21±.01 3.86±.22 3.38±.41 93.93±.05
    FL 80.55±.17 2.84±.36 0.19±.01 2.79±.45 2.75±.36 94.43±.01
    DualFocal 80.74±.24 2.68±.51 0.18±.01 2.66±.51 2.24±.29 94.81±.17
    AdaFocal 80.70±.11 2.58±.31 0.19±.01 2.61±.37 2.31±.29 93.75±.05
    Mixup 82.09±.26 4.28±.27 0.18±.02 4.24±.31 4.20±.63 94.35±.08
    MIT-L 81.29±.18 3.26±.18 0.18±.01 3.24±.19 3.09±.49 94.76±.12
    MMCE 81.02±.05 4.02±.29 0.18±.01 3.96±.22 3.69±.38 93.83±.07
    BatchEnsemble 79.93±.11 6.86±.21 0.21±.01 6.77±.27 2.49±.17 94.15±.02
    Rank1-BNN 80.21±.06 3.59±.01 0.19±.01 3.57±.08 2.42±.11 94.29±.06
    VI 76.30±.06 10.29±.11 0.27±.03 10.29±.11 2.08±.35 92.62±.08
    MIMO 80.75±.13 2.38±.06 0.17±.01 2.31±.04 2.04±.01 95.14±.04
    ACLS 80.49±.19 6.38±.29 0.19±.01 6.31±.33 2.90±.47 93.16±.14
    BalCAL 81.34±.02 5.69±.18 0.18±.01 5.66±.24 2.64±.21 93.49±.09
    bSAM 80.59±.07 8.27±.13 0.22±.01 8.27±.14 2.59±.17 94.01±.11
    SAM 82.93±.15 2.11±.17 0.17±.01 2.17±.21 1.89±.11 94.15±.06
    CSAM 83.07±.19 1.93±.15 0.15±.01 1.99±.05 1.54±.30 96.07±.03
    """,
)

# Table S11: CIFAR-10; the caption names no network, the figures are those of ResNet-56.
TABLE_S11 = table(
    "accuracy ECE classwise_ECE AdaECE TCE AUROC",
    """
    SGD 94.26±.06 3.52±.12 0.78±.01 3.52±.11 1.03±.01 98.09±.08
    SAM 94.50±.20 1.83±.08 0.44±.01 1.78±.03 0.70±.12 98.78±.08
    ASAM 94.82±.11 2.03±.11 0.48±.01 2.01±.14 0.61±.05 98.71±.02
    VASSO 94.70±.10 1.75±.04 0.42±.01 1.69±.05 0.71±.09 98.87±.06
    CSAM 94.58±.14 1.47±.17 0.41±.02 1.41±.19 0.72±.20 98.87±.06
    """,
)

# Table S12: CIFAR-100, as Table S11.
TABLE_S12 = table(
    "accuracy ECE classwise_ECE AdaECE TCE AUROC",
    """
    SGD 72.00±.15 13.14±.25 0.33±.01 13.13±.25 1.64±.09 91.12±.11
    SAM 74.87±.21 1.59±.10 0.17±.01 1.39±.16 1.38±.11 94.40±.01
    ASAM 74.11±.11 6.48±.26 0.22±.01 6.43±.25 1.31±.31 93.13±.09
    VASSO 74.94±.53 1.55±.25 0.17±.01 1.55±.24 1.43±.23 94.31±.07
    CSAM 74.85±.20 1.31±.40 0.17±.01 1.22±.23 1.36±.44 94.55±.06
    """,
)

# Table S13: CIFAR-100, ResNet-56 by its figures.
TABLE_S13 = table(
    "accuracy ECE",
    """
    SGD 72.30±.12 13.03±.26
    LS 72.54±.18 4.38±.14
    ACLS 72.49±.05 2.32±.40
    CRL 72.36±.18 3.43±.25
    CPC 72.45±.47 2.62±.54
    MBLS 72.42±.24 2.33±.42
    MDCA 72.38±.48 3.16±.17
    SAM 74.63±.24 1.87±.25
    CSAM 74.98±.16 1.25±.15
    """,
)

# Table S15: CIFAR-100, ResNet-56.
TABLE_S15 = table(
    "accuracy ECE TCE",
    """
    FL 71.96±.28 8.25±.23 3.27±.16
    FL+SAM 73.11±.01 6.90±.38 1.90±.13
    FL+CSAM 73.51±.10 3.94±.17 1.58±.13
    ACLS 72.55±.08 5.88±.18 3.29±.25
    ACLS+SAM 74.53±.09 1.37±.05 1.27±.18
    ACLS+CSAM 74.86±.07 1.01±.12 0.85±.05
    """,
)

# Table S15: CIFAR-100, WRN-28-10.
TABLE_S15_WRN = table(
    "accuracy ECE TCE",
    """
    FL 80.55±.17 2.84±.36 2.75±.36
    FL+SAM 81.33±.23 2.41±.06 1.76±.12
    FL+CSAM 82.08±.08 1.88±.11 1.42±.16
    ACLS 80.49±.19 6.38±.29 2.90±.47
    ACLS+SAM 83.04±.01 1.87±.10 1.80±.12
    ACLS+CSAM 83.13±.08 1.37±.21 1.36±.06
    """,
)

# Table S16: CIFAR-100, ResNet-56; on which loss and split is not said.
TABLE_S16 = table(
    "ECE kappa_max",
    """
    SGD 13.03±.26 631.89±86.81
    FL 1.85±.09 496.99±22.02
    LS 2.31±.15 583.74±52.08
    SAM 1.27±.25 177.99±13.25
    CSAM 1.08±.12 148.16±10.09
    """,
)

# Table S4: data/rho/gamma, ResNet-56. Of five columns of gamma (0 to 2) the text we have lost one:
# these are gamma 0 to 1.5 if it was the last, as SAM at rho .05 has an ECE of 1.83 in Table S11.
TABLE_S4 = table(
    "accuracy ECE",
    """
    CIFAR-10/0.05/0 94.67±.06 1.77±.04
    CIFAR-10/0.05/0.5 94.61±.09 1.46±.14
    CIFAR-10/0.05/1 94.62±.14 1.09±.07
    CIFAR-10/0.05/1.5 94.67±.14 0.66±.06
    CIFAR-10/0.1/0 94.74±.05 0.82±.12
    CIFAR-10/0.1/0.5 94.71±.07 0.54±.11
    CIFAR-10/0.1/1 94.90±.17 0.69±.14
    CIFAR-10/0.1/1.5 94.66±.09 1.34±.33
    CIFAR-100/0.05/0 73.52±.42 8.83±.15
    CIFAR-100/0.05/0.5 73.48±.31 7.52±.14
    CIFAR-100/0.05/1 73.55±.18 6.24±.28
    CIFAR-100/0.05/1.5 73.57±.46 4.86±.37
    CIFAR-100/0.1/0 73.94±.09 6.17±.18
    CIFAR-100/0.1/0.5 74.16±.17 4.34±.45
    CIFAR-100/0.1/1 73.96±.22 3.26±.40
    CIFAR-100/0.1/1.5 74.12±.09 1.84±.14
    """,
)
