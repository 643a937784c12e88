# /// script
# requires-python = ">=3.12"
# dependencies = ["fdtdx==0.6.3"]
# ///
"""Let a Gaussian source shine into a box for two wavelengths."""

import fdtdx
import jax
import jax.numpy as jnp


def simulate(wavelength):
    grid = fdtdx.UniformGrid(spacing=100e-9)
    config = fdtdx.SimulationConfig(time=10e-15, grid=grid, backend="cpu")
    volume = fdtdx.SimulationVolume(partial_real_shape=(2e-6, 2e-6, 2e-6))
    bounds = fdtdx.BoundaryConfig.from_uniform_bound(thickness=4)
    objects, constraints = fdtdx.boundary_objects_from_config(bounds, volume)
    source = fdtdx.GaussianPlaneSource(
        partial_grid_shape=(None, None, 1),
        fixed_E_polarization_vector=(1, 0, 0),
        wave_character=fdtdx.WaveCharacter(wavelength=wavelength),
        radius=0.5e-6,
        direction="-",
    )
    detector = fdtdx.EnergyDetector(name="energy", reduce_volume=True)
    constraints += [
        source.same_size(volume, axes=(0, 1)),
        source.place_at_center(volume),
        *detector.same_position_and_size(volume),
    ]
    listed = [volume, source, detector, *objects.values()]
    key = jax.random.key(0)
    placed, arrays, params, config, _ = fdtdx.place_objects(listed, config, constraints, key)
    arrays, placed, _ = fdtdx.apply_params(arrays, placed, params, key)

    def run(arrays):
        state = fdtdx.run_fdtd(arrays, placed, config, key, show_progress=False)
        return state[1].detector_states["energy"]["energy"]

    return jax.jit(run)(arrays)


for wavelength in (1.0e-6, 1.2e-6):
    print(wavelength, jnp.max(simulate(wavelength)))
