"""Interventions: what happens when activations are replaced (patch sweeps) or changed while a model runs (edits)."""

from helpers.interventions.edits import ablate, freeze, project_out, steer
from helpers.interventions.sweep import Sweep, patch_sweep

__all__ = ["Sweep", "ablate", "freeze", "patch_sweep", "project_out", "steer"]
