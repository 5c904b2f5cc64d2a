"""The audit of a notebook: its claims on models that learned nothing, other seeds, other units, other choices."""
