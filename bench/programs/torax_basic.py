# /// script
# requires-python = ">=3.12"
# dependencies = ["torax==1.4.3"]
# ///
"""Simulate two seconds of a plasma with torax's basic configuration and four sources."""

import torax
from torax.examples.basic_config import CONFIG

sources = {name: {} for name in ("generic_current", "generic_heat", "ei_exchange", "ohmic")}
changed = {"numerics": {"t_final": 2}, "sources": sources}
config = torax.ToraxConfig.from_dict(CONFIG | changed)
data, history = torax.run_simulation(config, progress_bar=False)
print(float(data.profiles.T_e[-1, 0]), history.sim_error)
