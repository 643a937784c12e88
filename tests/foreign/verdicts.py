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
        paths: Where the arguments differ, as the first reason has it; empty without one.
        times: How often.
    """

    place: str
    paths: str
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
        },
        warnings=STATIC_TYPES | CLASSES,
        unchecked={"NoseHooverChainFns": "JAX cannot trace"},
    ),
    # Without `brax.base:System`, whose 342 fields take longer than all others.
    "brax": Check(
        (*(f"brax.base:{name}" for name in _OF_BRAX_BASE), "brax.envs", "brax.training"),
        31,
        findings={
            ("UInt64", "hi"): "test_a_uint64_converts_what_stands_for_a_leaf",
            ("UInt64", "lo"): "test_a_uint64_converts_what_stands_for_a_leaf",
            ("UInt64", "transformations"): "test_a_uint64_has_no_gradient",
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
        | {
            "post-init": "test_a_uint64_converts_what_stands_for_a_leaf",
            "transformations": "test_a_uint64_has_no_gradient",
        },
        unchecked=dict.fromkeys(
            ("APGNetworks", "BCNetworks", "ESNetworks", "PPONetworks", "SACNetworks"),
            "JAX cannot trace FeedForwardNetwork",
        ),
        examples=3,
    ),
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
                        *("inner_ref_outer_index", "static_cache"),
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
            ("jax_md_fire.py:24", "fn", 29),
            ("jax_md_fire.py:21", "fn", 4),
            # `jax_md/space.py` gives none: test_a_placeholder_that_is_given_has_a_program.
            ("jax_md_fire.py:24", "fn", 1),
        ),
        {"safe_mask": 39},
        {"safe_mask": 0, "fn_mapped": 3},
    ),
    "optax_lbfgs": Explained(
        causes(("optax_lbfgs.py:29", "cond_fun", 3)),
        {"while": 4},
        {"minimise": 1},
    ),
    "nnx_training": Explained(
        causes(
            ("nnx_training.py:34", "x", 1),
            ("nnx_training.py:39", "model.dropout.deterministic", 1),
        ),
        {"train_step": 3},
        {"train_step": 1},
    ),
    "brax_steps": Explained(
        causes(("brax_steps.py:16", "state.reward", 1)),
        {"step": 2},
        {"step": 1},
    ),
    "blackjax_hmc": Explained(
        causes(("blackjax_hmc.py:28", "step_fn", 2)),
        {"step_fn": 3},
        {"step_fn": 0, "kernel": 1},
    ),
    "gymnax_loop": Explained(
        causes(("gymnax_loop.py:22", "mask", 18)),
        {"gather": 3, "select_n": 4},
        {"gather": 0, "select_n": 0},
    ),
    # What `make_step` calls while it is traced is a part of it.
    "diffrax_ode": Explained(
        causes(
            ("diffrax_ode.py:54", "times", 1),
            ("diffrax_ode.py:54", "model.scale, state[0].nu.scale", 1),
            ("diffrax_ode.py:54", "state[0].mu.scale", 1),
        ),
        {"make_step": 4},
        {"make_step": 1},
    ),
    "batch_sizes": Explained(causes(("batch_sizes.py:18", "batch", 2)), {"score": 3}, {"score": 1}),
    "solver_again": Explained(
        causes(("solver_again.py:21", "", 4)), {"while": 5}, {"while": 0, "<lambda>": 1}
    ),
    "growing": Explained(
        causes(("growing.py:17", "size", 11), ("growing.py:18", "xs", 11)),
        {"append": 12, "scan": 12},
        {"append": 0, "scan": 1},
    ),
    "guards": Explained(frozenset(), {"f": 9, "outer": 1}, {"f": 9}),
}
