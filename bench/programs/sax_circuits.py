# /// script
# requires-python = ">=3.12"
# dependencies = ["sax==0.18.2"]
# ///
"""Simulate two interferometers, and fit the length of an arm."""

import jax
import jax.numpy as jnp
import sax


def coupler(coupling=0.5):
    kappa, tau = coupling**0.5, (1 - coupling) ** 0.5
    through, across = ("in0", "out0"), ("in0", "out1")
    half = {through: tau, across: 1j * kappa}
    return sax.reciprocal({**half, ("in1", "out0"): 1j * kappa, ("in1", "out1"): tau})


def waveguide(wl=1.55, length=10.0):
    index = 2.34 - (wl - 1.55) * (3.4 - 2.34) / 1.55
    return sax.reciprocal({("in0", "out0"): jnp.exp(2j * jnp.pi * index * length / wl)})


def chain(stages):
    instances, connections = {"c0": "coupler"}, {}
    for n in range(stages):
        instances |= {f"top{n}": "waveguide", f"low{n}": "waveguide", f"c{n + 1}": "coupler"}
        connections |= {f"c{n},out0": f"low{n},in0", f"c{n},out1": f"top{n},in0"}
        connections |= {f"low{n},out0": f"c{n + 1},in0", f"top{n},out0": f"c{n + 1},in1"}
    ports = {"in0": "c0,in0", "out0": f"c{stages},out0", "out1": f"c{stages},out1"}
    return {"instances": instances, "connections": connections, "ports": ports}


wl = jnp.linspace(1.5, 1.6, 50)
for stages in (1, 4):
    models = {"coupler": coupler, "waveguide": waveguide}
    circuit, _ = sax.circuit(netlist=chain(stages), models=models)

    @jax.jit
    def loss(length, circuit=circuit):
        return jnp.mean(jnp.abs(circuit(wl=wl, top0={"length": length})["in0", "out0"]) ** 2)

    gradient = jax.jit(jax.grad(loss))
    length = 20.0
    for _ in range(4):
        length -= 0.1 * gradient(length)
    print(stages, length, loss(length), jnp.abs(circuit(wl=wl)["in0", "out1"][0]))
