"""The recipe of CSAM."""
