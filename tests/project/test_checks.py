"""Wrong arguments to the public functions: an error that names argument, value and remedy."""

import inspect
import pickle
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float
from support.calls import bind, public_functions
from support.helpers import cast

import rbd_jax as rbd
from rbd_jax import samples
from rbd_jax.model.arguments import array_arguments, checked

MODEL = samples.random_tree(3, kinds=("free", "revolute"))  # nq, nv, nb differ
FUNCTIONS = public_functions()
ARGUMENTS = [
    (name, argument)
    for name, f in sorted(FUNCTIONS.items())
    for argument, array in array_arguments(f).items()
    if array.dims and all(d in ("nq", "nv", "nb", "nj") or isinstance(d, int) for d in array.dims)
]
ids = [f"{f}-{a}" for f, a in ARGUMENTS]
every_argument = pytest.mark.parametrize("function, argument", ARGUMENTS, ids=ids)
robot = MODEL.topology.name


def last(function):
    return function.split(".")[-1]


def _call(function, **changes):
    return FUNCTIONS[function](MODEL, **{**bind(function, MODEL), **changes})


def _dims(function, argument):
    names = array_arguments(FUNCTIONS[function])[argument].dims
    shape = tuple(getattr(MODEL, d) if isinstance(d, str) else d for d in names)
    text = "(" + ", ".join(map(str, names)) + ("," if len(names) == 1 else "") + ")"
    return shape, text


def test_the_table_covers_the_dynamics():
    expected = {("rnea", "f_ext"), ("aba", "tau"), ("hybrid_dynamics", "prescribed"), ("crba", "q")}
    assert expected <= set(ARGUMENTS)
    assert len({f for f, _ in ARGUMENTS}) >= 20


@every_argument
def test_wrong_length(function, argument):
    shape, text = _dims(function, argument)
    wrong = (shape[0] + 1, *shape[1:])
    dtype = bool if argument == "prescribed" else float
    message = f"{last(function)}: {argument} has shape {wrong}, expected {text} = {shape} for robot"
    with pytest.raises(ValueError, match=re.escape(f"{message} {robot!r}") + "$"):
        _call(function, **{argument: jnp.zeros(wrong, dtype)})


@every_argument
def test_a_batch_is_told_about_vmap(function, argument):
    shape, _ = _dims(function, argument)
    dtype = bool if argument == "prescribed" else float
    message = (
        f"{last(function)}: {argument} has shape {(3, *shape)}.*; functions take one sample, use "
    )
    pattern = re.escape(message).replace(r"\.\*", ".*") + "jax.vmap for a batch$"
    with pytest.raises(ValueError, match=pattern):
        _call(function, **{argument: jnp.zeros((3, *shape), dtype)})


@pytest.mark.float64
@every_argument
def test_wrong_dtype(function, argument):
    shape, _ = _dims(function, argument)
    if argument == "prescribed":
        message, value = "prescribed must be bool, got float64", jnp.zeros(shape)
    else:
        message = f"{argument} must be floating point, got int64; use astype(float)"
        value = jnp.zeros(shape, jnp.int64)
    with pytest.raises(TypeError, match=re.escape(f"{last(function)}: {message}") + "$"):
        _call(function, **{argument: value})


@every_argument
def test_errors_come_under_jit_too(function, argument):
    shape, _ = _dims(function, argument)
    dtype = bool if argument == "prescribed" else float
    with pytest.raises(ValueError, match=f"^{last(function)}: {argument} has shape"):
        jax.eval_shape(
            lambda x: _call(function, **{argument: x}), jnp.zeros((shape[0] + 2, *shape[1:]), dtype)
        )


@pytest.mark.parametrize("function", sorted(FUNCTIONS))
def test_not_a_model(function):
    message = (
        f"{last(function)}: the first argument must be a rbd_jax.Model, got str; make one with"
    )
    with pytest.raises(TypeError, match=re.escape(message)):
        FUNCTIONS[function]("talos.urdf", **bind(function, MODEL))


def test_a_plant_instead_of_its_robot_is_told_where_its_robot_is():
    plant = rbd.simulate.Robot(MODEL)
    with pytest.raises(TypeError, match="got Robot; its robot is its attribute model"):
        rbd.mass_matrix(plant, rbd.neutral(MODEL))


@pytest.mark.parametrize("function", [f for f, a in ARGUMENTS if a == "q"])
def test_missing_and_unknown_arguments(function):
    given = bind(function, MODEL)
    with pytest.raises(TypeError, match="velocity"):
        FUNCTIONS[function](MODEL, **given, velocity=1)
    del given["q"]
    with pytest.raises(TypeError, match="q"):
        FUNCTIONS[function](MODEL, **given)


@every_argument
def test_what_is_no_array(function, argument):
    parameter = inspect.signature(FUNCTIONS[function]).parameters[argument]
    shape, text = _dims(function, argument)
    for value in [[0.0] * shape[0], *([None] if parameter.default is parameter.empty else [])]:
        message = f"{last(function)}: {argument} must be an array of shape {text} = {shape}, got "
        with pytest.raises(TypeError, match=re.escape(message + type(value).__name__) + ".*as"):
            _call(function, **{argument: value})


def test_annotations_say_what_is_checked():
    """Sizes that the robot does not decide are counted, not compared."""

    @checked
    def f(model, x: Float[Array, "k nv"], y: Float[Array, "4 *n"], n: Float[Array, ""] | float):
        return x, y, n

    shaped = jnp.ones((5, MODEL.nv)), jnp.ones((4, 2, 3)), 2
    x, y, n = f(MODEL, *shaped)
    assert x is shaped[0] and y is shaped[1] and n.dtype == MODEL.dtype and n == 2
    with pytest.raises(
        ValueError, match=r"f: x has shape \(5, 6\), expected \(k, nv\) = \(k, 7\) "
    ):
        f(MODEL, shaped[0][:, 1:], *shaped[1:])
    with pytest.raises(ValueError, match=r"f: x has shape \(2, 5, 7\), .*use jax.vmap"):
        f(MODEL, jnp.stack([shaped[0]] * 2), *shaped[1:])
    with pytest.raises(TypeError, match="f: y must be an array, got list; use jnp.asarray"):
        f(MODEL, shaped[0], [1.0], 2)
    with pytest.raises(TypeError, match="f: n must be a number, got NoneType"):
        f(MODEL, *shaped[:2], None)
    assert f(MODEL, shaped[0].astype("float32"), *shaped[1:])[0].dtype == MODEL.dtype


@pytest.mark.parametrize("leaf", ["inertia", "axis", "gravity", "damping"])
def test_a_leaf_of_another_shape(leaf):
    """One row for all bodies would be broadcast without a word."""
    value = jnp.ones((1, *getattr(MODEL, leaf).shape[1:]))
    wrong = eqx.tree_at(lambda m: getattr(m, leaf), MODEL, value)
    with pytest.raises(ValueError, match=rf"rnea: model.{leaf} of .* has shape \(1.*, expected"):
        _ = rbd.rnea(wrong, **bind("rnea", MODEL))


def test_one_time_step():
    s = bind("rnea", MODEL)
    for f in (
        rbd.step,
        rbd.simulate.step_derivatives,
        lambda m, *x: rbd.rollout(m, *x[:2], x[2][None], x[3]),
    ):
        with pytest.raises(
            ValueError, match=r"(step|rollout).*: dt has shape .*, expected a number"
        ):
            f(MODEL, s["q"], s["v"], s["a"], jnp.ones(MODEL.nv))
        with pytest.raises(TypeError, match="(step|rollout).*: dt must be a number, got NoneType"):
            f(MODEL, s["q"], s["v"], s["a"], None)


def test_a_pickled_topology_has_no_hash_of_this_process():
    """Python's hashes of strings differ between processes."""
    hash(MODEL.topology)
    again = pickle.loads(pickle.dumps(MODEL.topology))
    assert "_hash" not in vars(again) and again == MODEL.topology
    assert hash(again) == hash(MODEL.topology) and again.nv == MODEL.nv


def test_a_pickled_structure_of_a_model():
    """It equals the model's, as a serialized executable asks for, and it can be filled."""
    leaves, tree = jax.tree.flatten(MODEL)
    again = pickle.loads(pickle.dumps(tree))
    assert again == tree and hash(again) == hash(tree)
    assert jax.tree.unflatten(again, leaves).nv == MODEL.nv


QUICK = ("rnea", "bias_torque", "inverse_dynamics", "forward_dynamics")


@pytest.mark.float64
@pytest.mark.parametrize(
    "function",
    [
        pytest.param(f, marks=() if f in QUICK else pytest.mark.slow)
        for f, a in ARGUMENTS
        if a == "f_ext"
    ],
)
def test_f_ext_may_be_left_out(function):
    given = bind(function, MODEL)
    del given["f_ext"]
    run = jax.jit(FUNCTIONS[function])
    without = run(MODEL, **given)
    none = run(MODEL, **given, f_ext=None)
    zero = run(MODEL, **given, f_ext=jnp.zeros((MODEL.nb, 6)))
    for a, b, c in zip(*map(jax.tree.leaves, (without, none, zero)), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=0)
        np.testing.assert_allclose(a, c, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "function",
    [f for f in FUNCTIONS if "frame" in inspect.signature(FUNCTIONS[f]).parameters],
)
def test_unknown_frame_names_the_nearest(function):
    near = [n for n in MODEL.frame_names if n.startswith("link")][0]
    with pytest.raises(KeyError, match=f"has no frame 'lnk0'; nearest.*{near}"):
        _call(function, frame="lnk0")
    for wrong in (len(MODEL.frame_names), -1, -len(MODEL.frame_names) - 1):
        with pytest.raises(IndexError, match=f"has no frame number {wrong}: its .* numbered from"):
            _call(function, frame=wrong)


@pytest.mark.parametrize("function", sorted(FUNCTIONS))
def test_a_fleet_is_told_about_vmap(function):
    fleet = jax.tree.map(lambda x: jnp.stack([x, x]), MODEL)
    message = f"{last(function)}: model.inertia of robot {robot!r} has shape"
    with pytest.raises(ValueError, match=re.escape(message) + ".*use jax.vmap for a fleet"):
        FUNCTIONS[function](fleet, **bind(function, MODEL))


@pytest.mark.float64
@pytest.mark.parametrize("model_dtype, dtype", [("float32", "float64"), ("float64", "float32")])
def test_the_model_decides_the_precision(model_dtype, dtype):
    """Also of what it is given in another one."""
    model = cast(MODEL, model_dtype)
    for function in ("rnea", "inverse_dynamics", "forward_dynamics", "forward_kinematics"):
        given, run = cast(bind(function, MODEL), dtype), jax.jit(FUNCTIONS[function])
        out = run(model, **given)
        same = run(model, **cast(given, model_dtype))
        for x, y in zip(*map(jax.tree.leaves, (out, same)), strict=True):
            assert x.dtype == model_dtype
            np.testing.assert_array_equal(x, y)


def test_unknown_reference():
    # unwrapped: in a test run the check of the annotations would come first
    plain = inspect.unwrap(rbd.jacobian)
    with pytest.raises(ValueError, match="reference must be one of .*got 'body'"):
        plain(MODEL, rbd.neutral(MODEL), "link0", "body")


def test_unknown_joint_names_the_nearest():
    with pytest.raises(KeyError, match="has no joint 'jont0'; nearest.*joint0"):
        MODEL.q_slice("jont0")
    with pytest.raises(KeyError, match="has no joint 'jont0'; nearest.*joint0"):
        MODEL.v_slice("jont0")


def test_rollout():
    q, v = rbd.neutral(MODEL), jnp.zeros(MODEL.nv)
    u = jnp.zeros((4, MODEL.nv))
    plain = inspect.unwrap(rbd.rollout)  # else the check of the annotations comes first
    run = lambda u, **options: plain(MODEL, q, v, u, 0.01, **options)  # noqa: E731
    with pytest.raises(
        ValueError, match=r"controls has shape \(4, 3\), expected \(T, nv\) = \(T, 7"
    ):
        run(u[:, :3])
    with pytest.raises(ValueError, match=r"controls has shape \(7,\), expected \(T, nv\)"):
        run(u[0])
    with pytest.raises(ValueError, match="steps=5 but controls has 4 rows"):
        run(u, steps=5)
    with pytest.raises(ValueError, match="a policy needs the number of steps"):
        run(lambda t, q, v: v)
    with pytest.raises(ValueError, match="integrator must be one of .*'rk4'.*got 'eulr'"):
        run(u, integrator="eulr")
    with pytest.raises(ValueError, match=r"f_ext has shape \(1, 6\)"):
        rbd.rollout(MODEL, q, v, u, 0.01, f_ext=jnp.zeros((1, 6)))


@pytest.mark.parametrize("function", ["center_of_mass", "centroidal_momentum"])
def test_robots_without_mass_have_no_center_of_mass(function):
    """An error where the masses are known, in programs too; NaN where they are traced."""
    massless = eqx.tree_at(lambda m: m.inertia, MODEL, jnp.zeros_like(MODEL.inertia))
    q, v = rbd.neutral(MODEL), jnp.zeros(MODEL.nv)
    args = (q,) if function == "center_of_mass" else (q, v)
    told = (
        f"{function}: robot '{MODEL.topology.name}' has no center of mass, because its .* no mass"
    )
    with pytest.raises(ValueError, match=told):
        getattr(rbd, function)(massless, *args)
    with pytest.raises(ValueError, match=told):
        jax.jit(lambda *x: getattr(rbd, function)(massless, *x))(*args)
    assert jnp.isnan(jax.jit(getattr(rbd, function))(massless, *args)).any()
    assert jnp.isfinite(getattr(rbd, function)(MODEL, *args)).all()
    fixed = rbd.load_urdf('<robot name="r"><link name="base"/></robot>')
    still = [jnp.zeros(0)] * len(args)
    with pytest.raises(ValueError, match="its 0 moving bodies have no mass.*floating_base=True"):
        getattr(rbd, function)(fixed, *still)
