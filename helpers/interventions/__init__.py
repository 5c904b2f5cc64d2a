"""Interventions: what happens when activations are replaced (patch sweeps) or changed while a model runs (edits).

`start_at` makes many of them from one layer on cheaper.
"""

from helpers.interventions.edits import ablate, edit, freeze, project_out, steer
from helpers.interventions.start import start_at
from helpers.interventions.sweep import Sweep, patch_sweep

__all__ = ["Sweep", "ablate", "edit", "freeze", "patch_sweep", "project_out", "start_at", "steer"]
