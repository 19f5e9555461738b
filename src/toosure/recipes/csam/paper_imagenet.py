"""Tables 2 and S14 of the paper: ImageNet-1K, one run each; C1 to C3 are three corruptions."""

from toosure.recipes.csam.paper import table

COLUMNS = "accuracy ECE TCE AdaECE AUROC acc_C1 acc_C2 acc_C3 ECE_C1 ECE_C2 ECE_C3"

# Table 2.
TABLE_2 = table(
    COLUMNS,
    """
    ResNet-50/SGD 76.97 3.39 1.80 3.31 94.01 36.89 35.81 24.99 7.97 4.23 17.29
    ResNet-50/SAM 77.32 1.52 1.54 1.44 94.35 37.45 36.35 27.85 4.91 3.74 6.92
    ResNet-50/CSAM 77.95 1.18 1.09 1.19 94.67 38.29 37.11 28.69 3.28 3.02 5.47
    ViT-S/32/AdamW 65.03 9.11 2.63 9.11 88.63 33.53 32.87 26.48 14.73 12.28 19.57
    ViT-S/32/SAM 69.21 3.04 1.18 3.05 91.01 37.95 36.09 33.36 3.35 6.27 7.89
    ViT-S/32/CSAM 70.01 2.88 0.92 2.78 91.54 38.88 36.94 34.16 3.01 5.76 5.41
    ViT-S/16/AdamW 71.35 9.72 3.66 9.72 90.61 37.40 35.54 24.26 14.14 12.27 18.63
    ViT-S/16/SAM 75.42 1.76 1.66 1.73 93.27 43.36 39.15 28.93 2.92 3.58 5.02
    ViT-S/16/CSAM 75.91 1.58 1.34 1.54 93.66 44.01 39.82 29.57 2.81 3.24 4.75
    """,
)

# Table S14: ViT-S/32; its row "SGD" is the base of the others, AdamW in Table 2.
TABLE_S14 = table(
    "accuracy ECE acc_C1 acc_C2 acc_C3 ECE_C1 ECE_C2 ECE_C3",
    """
    AdamW 65.91 11.56 33.54 30.21 34.18 23.70 24.65 18.00
    MBLS 67.19 2.21 34.54 31.58 35.58 11.83 12.61 8.58
    CPC 65.68 9.34 32.34 31.01 35.71 20.46 23.19 15.04
    ACLS 66.68 3.97 34.67 31.88 36.00 15.72 16.17 10.25
    MDCA 65.23 8.38 33.11 29.91 33.71 23.31 24.28 17.15
    SAM 69.48 2.47 38.25 35.27 39.54 7.33 7.77 3.15
    CSAM 69.78 1.79 38.58 35.46 39.85 7.07 7.70 2.76
    """,
)
