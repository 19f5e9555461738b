"""Distances from the decision border: margins, robust margins, moments and certificates."""

from toosure.margins.attacks import attacked_margin, linearised_margin, normalised_margin
from toosure.margins.certificates import certify
from toosure.margins.certified import certified_margin, robust_margin
from toosure.margins.exponential_moments import LogMoment, log_moment
from toosure.margins.label_shift import label_preserving_shift
from toosure.margins.margins import predicted_margin, soft_margin, summarise, true_margin
from toosure.margins.robust import RobustMargin
from toosure.margins.sam_theory import SamCertificate, certify_sam
from toosure.margins.statements import Certificate, Statement

__all__ = [
    "Certificate",
    "LogMoment",
    "RobustMargin",
    "SamCertificate",
    "Statement",
    "attacked_margin",
    "certified_margin",
    "certify",
    "certify_sam",
    "label_preserving_shift",
    "linearised_margin",
    "log_moment",
    "normalised_margin",
    "predicted_margin",
    "robust_margin",
    "soft_margin",
    "summarise",
    "true_margin",
]
