"""Closed loops: steer a radius or a gamma by the over-confidence on a control split.

>>> Radius(gain=0.2).actuator
'rho'
"""

from toosure.control.actuators import Actuator, CSAMGamma, FocalGamma, Joint, Rho
from toosure.control.guard import AccuracyGuard, DirectionGuard
from toosure.control.integrator import Integrator
from toosure.control.radius import RadiusControl
from toosure.control.sensor import Reading, SensorReading, log_temperature, signed_gap
from toosure.control.settings import Radius

# To add a controller: write the record of its settings and list it by its name on the command line.
CONTROLS: dict[str, type] = {"radius": Radius}

__all__ = [
    "CONTROLS",
    "AccuracyGuard",
    "Actuator",
    "CSAMGamma",
    "DirectionGuard",
    "FocalGamma",
    "Integrator",
    "Joint",
    "Radius",
    "RadiusControl",
    "Reading",
    "Rho",
    "SensorReading",
    "log_temperature",
    "signed_gap",
]
