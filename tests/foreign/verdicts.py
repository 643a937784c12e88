"""What `leafwise` must say of libraries that nobody here wrote, and no more than that.

The versions are those of the dependency group `foreign`. Each finding names the test in
test_confirmed.py that shows it in plain JAX; each script is run in plain JAX as it is, and once
more with the argument `fixed`, where what was blamed is changed, and nothing else. Causes inside a
library that `fixed` does not touch name their test.
"""

from typing import NamedTuple


class Check(NamedTuple):
    """What `leafwise check` says of some modules.

    Attributes:
        targets: The modules.
        classes: How many classes there are.
        findings: What is wrong, as class and law, or class and field; with the test that shows it.
        warnings: The laws that a library is known not to keep, with the test that shows it.
        unchecked: The classes that it cannot judge, with a word of the reason.
        examples: How many instances each law sees.
    """

    targets: tuple[str, ...]
    classes: int
    findings: dict[tuple[str, str], str] = {}  # noqa: RUF012
    warnings: dict[str, str] = {}  # noqa: RUF012
    unchecked: dict[str, str] = {}  # noqa: RUF012
    examples: int = 20


class Cause(NamedTuple):
    """What made JAX trace or compile again.

    Attributes:
        place: The end of its file and line.
        cause: What is told of it.
        times: How often.
    """

    place: str
    cause: str
    times: int


class Explained(NamedTuple):
    """What `leafwise explain` says of a script.

    Attributes:
        causes: What made JAX work again, all of it, but for what a library does at import.
        blamed: The functions that were compiled again: how often they were in all.
        fixed: How often they are without what was blamed.
    """

    causes: frozenset[Cause]
    blamed: dict[str, int]
    fixed: dict[str, int]


def causes(*each: tuple[str, str, int]) -> frozenset[Cause]:
    """Return causes."""
    return frozenset(Cause(*one) for one in each)


STATIC_TYPES = {"static-types": "test_true_and_one_are_one_static"}
CLASSES = {"distinct-classes": "test_cond_takes_one_class_for_another"}
LISTS = {"aux-data-hash": "test_a_list_as_a_static_changes_in_place"}

_OF_BRAX_BASE = (
    *("Base", "Transform", "Motion", "Force", "Inertia", "Link", "DoF", "Contact"),
    *("Actuator", "State"),
)
CHECKS = {
    "optax": Check(("optax",), 77),
    "gymnax": Check(("gymnax",), 54, warnings=CLASSES),
    "blackjax": Check(("blackjax",), 113),
    "jax_md": Check(
        (
            "jax_md.partition",
            "jax_md.minimize",
            "jax_md.simulate",
            "jax_md.rigid_body",
            "jax_md.tpu",
            "jax_md.mm_forcefields.amber.energy",
        ),
        24,
        findings={
            ("CellList", "no-hidden-state"): "test_a_cell_size_is_a_leaf",
            ("FEOptions", "vdw_scaling"): "test_a_scaling_cannot_be_traced",
            ("FEOptions", "coul_scaling"): "test_a_scaling_cannot_be_traced",
        },
        warnings=STATIC_TYPES | CLASSES,
        unchecked={"NoseHooverChainFns": "JAX cannot trace"},
    ),
    # Without `brax.base:System`, whose 342 fields take longer than all others.
    "brax": Check(
        (*(f"brax.base:{name}" for name in _OF_BRAX_BASE), "brax.envs", "brax.training"),
        31,
        findings={
            ("UInt64", "any-leaf"): "test_a_uint64_converts_what_stands_for_a_leaf",
            ("UInt64", "transformations"): "test_a_uint64_has_no_gradient",
            ("TrainingState", "any-leaf"): "test_a_uint64_converts_what_stands_for_a_leaf",
            ("TrainingState", "transformations"): "test_a_uint64_has_no_gradient",
            **dict.fromkeys(
                [
                    ("TrainingState", field)
                    for field in ("env_steps", "gradient_steps", "num_env_steps")
                ],
                "test_a_uint64_converts_what_stands_for_a_leaf",
            ),
        },
        warnings=STATIC_TYPES
        | CLASSES
        | {"post-init": "test_a_uint64_converts_what_stands_for_a_leaf"},
        unchecked=dict.fromkeys(
            ("APGNetworks", "BCNetworks", "ESNetworks", "PPONetworks", "SACNetworks"),
            "JAX cannot trace FeedForwardNetwork",
        ),
        examples=3,
    ),
    # The layers of flax.nnx need streams of random numbers by name, which nothing announces.
    "flax.nnx": Check(
        ("flax.nnx.graphlib", "flax.nnx.statelib", "flax.nnx.nn.stochastic"),
        15,
        findings={
            ("GraphState", "copies"): "test_a_graph_state_cannot_be_copied",
            ("GraphState", "fresh-process"): "test_a_graph_state_cannot_be_copied",
            ("FlatState", "round-trip"): "test_a_flat_state_comes_back_with_a_tuple",
            ("FlatState", "identity-map"): "test_a_flat_state_comes_back_with_a_tuple",
            **dict.fromkeys(
                [
                    ("UpdateContext", each)
                    for each in (
                        *("static-values", "tag", "outer_ref_outer_index"),
                        *("outer_index_inner_ref", "outer_index_outer_ref"),
                        "inner_ref_outer_index",
                    )
                ],
                "test_an_update_context_equals_any_other",
            ),
        },
        warnings=STATIC_TYPES | CLASSES | LISTS | {"post-init": "test_post_init_runs_again"},
        examples=5,
    ),
}

SCRIPTS = {
    "jax_md_fire": Explained(
        causes(
            ("jax_md/energy.py:171", "a new lambda each call", 37),
            # `jax_md/space.py` gives none: test_a_placeholder_that_is_given_has_a_program.
            ("jax_md/energy.py:171", "arguments of placeholder and 2 more", 1),
        ),
        {"safe_mask": 39},
        {"safe_mask": 0, "fn_mapped": 3},
    ),
    "optax_lbfgs": Explained(
        causes(
            ("optax_lbfgs.py:29", "a new lambda each call and 1 more", 3),
        ),
        {"while": 4},
        {"minimise": 1},
    ),
    "nnx_training": Explained(
        causes(
            ("nnx_training.py:34", "another shape of x, y", 1),
            ("nnx_training.py:39", "another value of model._graphdef.attributes", 1),
        ),
        {"train_step": 3},
        {"train_step": 1},
    ),
    "brax_steps": Explained(
        causes(("brax_steps.py:16", "weak type of state.reward and 1 more", 1)),
        {"step": 2},
        {"step": 1},
    ),
    "blackjax_hmc": Explained(
        causes(
            ("blackjax_hmc.py:28", "a new function each call, with another value in it", 2),
        ),
        {"step_fn": 3},
        {"step_fn": 0, "kernel": 1},
    ),
    "gymnax_loop": Explained(
        causes(("gymnax_loop.py:22", "a boolean mask", 16)),
        {"gather": 3, "select_n": 4},
        {"gather": 0, "select_n": 0},
    ),
    "diffrax_ode": Explained(
        causes(
            ("diffrax_ode.py:54", "another shape of times, series", 1),
            ("diffrax_ode.py:54", "weak type of model.scale, state[0].nu.scale", 1),
            ("diffrax_ode.py:54", "weak type of state[0].mu.scale", 1),
            # The same, in the functions that `make_step` calls while it is traced.
            ("diffrax_ode.py:26", "another shape of saveat.subs.ts", 1),
            ("diffrax_ode.py:26", "weak type of terms.vector_field.scale", 1),
            ("diffrax_ode.py:44", "weak type of moment.scale", 1),
            ("diffrax/_integrate.py:1223", "another shape of x, pred", 1),
            ("diffrax/_integrate.py:1228", "another shape of x, pred", 1),
            ("diffrax/_integrate.py:1542", "another shape of x.ts, x.ys", 1),
            # Checks of diffrax, which differ in their messages: test_each_message_has_a_program.
            ("diffrax/_integrate.py:1223", "another value of msgs[0] and 2 more", 1),
            ("diffrax/_integrate.py:1228", "another value of msgs[0] and 1 more", 1),
            ("diffrax/_integrate.py:1542", "another structure of x and 3 more", 1),
        ),
        {"make_step": 4},
        {"make_step": 1},
    ),
}
