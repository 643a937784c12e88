# /// script
# requires-python = ">=3.12"
# dependencies = ["jaxsim==0.9.0"]
# ///
"""Let an arm of five links fall."""

import jax
import jax.numpy as jnp
import jaxsim.api as js

LINK = """
<link name="link{0}"><pose>0 0 {1} 0 0 0</pose>
  <inertial><mass>1.0</mass><inertia><ixx>0.1</ixx><iyy>0.1</iyy><izz>0.1</izz></inertia></inertial>
</link>"""
BASE = '<joint name="base" type="fixed"><parent>world</parent><child>link0</child></joint>'
JOINT = """
<joint name="joint{0}" type="revolute"><parent>{1}</parent><child>link{0}</child>
  <axis><xyz>{2} {3} 0</xyz></axis>
</joint>"""
parts = [LINK.format(0, 0.0), BASE]
for number in range(1, 5):
    parts.append(LINK.format(number, 0.3 * number))
    parts.append(JOINT.format(number, f"link{number - 1}", number % 2, 1 - number % 2))
arm = f'<sdf version="1.7"><model name="arm">{"".join(parts)}</model></sdf>'

model = js.model.JaxSimModel.build_from_model_description(arm, is_urdf=False, time_step=1e-3)
start = jnp.linspace(0.1, 0.6, model.dofs())
data = js.data.JaxSimModelData.build(model=model, joint_positions=start)
for _ in range(5):
    data = js.model.step(model=model, data=data, joint_force_references=jnp.zeros(model.dofs()))
energy = js.model.mechanical_energy(model=model, data=data)
mass = js.model.free_floating_mass_matrix(model=model, data=data)
print(data.joint_positions, energy, jax.numpy.linalg.cond(mass))
