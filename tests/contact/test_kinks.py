"""Derivatives in the states in which robots begin: at rest, unloaded, at the ends of ranges.

Rows, clips and curves have kinks there. A derivative at a kink has to be that of one side, and
where both sides are equal it has to be theirs.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rbd_jax as rbd
from rbd_jax.simulate import State, as_plant

pytestmark = pytest.mark.float64  # small differences


def scene(bodies: str, rest: str = "", option: str = "", gravity: float = 0) -> str:
    return (
        f'<mujoco><compiler autolimits="true"/><option gravity="0 0 {gravity}" {option}/>'
        f"<worldbody>{bodies}</worldbody>{rest}</mujoco>"
    )


def slide(name="x", joint="", inside="") -> str:
    return (
        f'<body name="{name}"><joint name="{name}" type="slide" axis="1 0 0" {joint}/>'
        f'<geom size=".1" {GHOST}/>{inside}</body>'
    )


GHOST = 'contype="0" conaffinity="0"'


SITES = '<site name="from" pos="-1 0 0"/>'
TIED = SITES + slide(joint='damping="1"', inside='<site name="to"/>')
LINE = '<tendon><spatial name="t" {}><site site="from"/><site site="to"/></spatial></tendon>'
FIXED = '<tendon><fixed {}><joint joint="x" coef="2"/></fixed></tendon>'
FREE = '<body pos="0 0 1"><freejoint/><geom type="box" size=".1 .2 .3" {}/></body>'
BALL = f'<body><joint type="ball" {{}}/><geom type="box" size=".1 .2 .3" {GHOST}/></body>'
HANGING = f'<body><joint axis="0 1 0"/><geom size=".1" pos="0 0 -.5" {GHOST}/></body>'
TABLE = '<geom type="plane" size="1 1 1"/>' + FREE.format("").replace("0 0 1", "0 0 .299")


def driven(kind: str) -> str:
    return scene(slide(), f"<actuator>{kind}</actuator>")


def muscle(options: str = "") -> str:
    drive = f'<actuator><muscle tendon="t" lengthrange=".5 1.5" {options}/></actuator>'
    return scene(TIED, LINE.format("") + drive)


STATES = {
    "a joint at rest": (scene(slide(joint='damping="1"')), {}),
    "a joint with friction at rest": (scene(slide(joint='frictionloss=".3"')), {}),
    "a joint at its limit": (scene(slide(joint='range="0 1"')), {}),
    "a pendulum that hangs": (scene(HANGING, gravity=-10), {}),
    "a free body": (scene(FREE.format("")), {}),
    "a free body that falls": (scene(FREE.format(""), gravity=-10), {}),
    "a ball joint": (scene(BALL.format("")), {}),
    "a ball joint with a limit": (scene(BALL.format('range="0 40"')), {}),
    "fluid at rest": (scene(FREE.format(""), option='density="1.2" viscosity="1e-3"'), {}),
    "an ellipsoid in a fluid": (
        scene(FREE.format('fluidshape="ellipsoid"'), option='density="1.2" viscosity="1e-3"'),
        {},
    ),
    "a control at its bound": (driven('<motor joint="x" ctrlrange="-1 1"/>'), {"u": [1.0]}),
    "a force at its bound": (driven('<motor joint="x" forcerange="-2 2"/>'), {"u": [-2.0]}),
    "a servo at rest": (driven('<position joint="x" kp="3" kv="1"/>'), {}),
    "a sum of forces at its bound": (
        scene(slide(joint='actuatorfrcrange="-1 1"'), '<actuator><motor joint="x"/></actuator>'),
        {"u": [1.0]},
    ),
    "an activation at its bound": (
        driven(
            '<general joint="x" dyntype="filter" dynprm=".1" gainprm="2" actlimited="true" '
            'actrange="0 1"/>'
        ),
        {},
    ),
    "a spring tendon at rest": (scene(TIED, LINE.format('stiffness="5"')), {}),
    "a fixed tendon at rest": (
        scene(slide(), FIXED.format('stiffness="5" damping="1" frictionloss=".2"')),
        {},
    ),
    "a tendon between two lengths": (
        scene(TIED, LINE.format('stiffness="5" springlength=".5 2"')),
        {},
    ),
    "a tendon at its limit": (scene(TIED, LINE.format('range="0 1"')), {}),
    "a tendon whose force is at its limit": (
        scene(
            TIED,
            LINE.format('actuatorfrcrange="-1 1"') + '<actuator><motor tendon="t"/></actuator>',
        ),
        {"u": [1.0]},
    ),
    "a muscle at rest": (muscle(), {}),
    "an active muscle at rest": (muscle(), {"u": [1.0], "act": [1.0]}),
    "a smooth muscle at rest": (muscle('tausmooth=".1"'), {"u": [0.5], "act": [0.5]}),
    "a weld": (scene(slide(), '<equality><weld body1="x"/></equality>'), {}),
    "two joints in step": (
        scene(slide() + slide("y"), '<equality><joint joint1="x" joint2="y"/></equality>'),
        {},
    ),
    "a box at rest on a table": (scene(TABLE, gravity=-10), {"steps": 300}),
    "the same with elliptic cones": (
        scene(TABLE, option='cone="elliptic"', gravity=-10),
        {"steps": 300},
    ),
    "the same with noslip": (
        scene(TABLE, option='noslip_iterations="5"', gravity=-10),
        {"steps": 300},
    ),
    "a box that touches in no gravity": (scene(TABLE), {}),
}
"""Scenes by what is at a kink, with the state where it is not at rest."""


LONG = {  # the same laws as another state, or as tests of their own
    "a ball joint",
    "a free body",
    "a ball joint with a limit",
    "fluid at rest",
    "an ellipsoid in a fluid",
    "a tendon at its limit",
    "a tendon whose force is at its limit",
    "an active muscle at rest",
    "a smooth muscle at rest",
    "a weld",
    "two joints in step",
    "the same with elliptic cones",
    "the same with noslip",
}


@pytest.mark.slow
@pytest.mark.parametrize("integrator", ["Euler", "implicitfast", "RK4"])
@pytest.mark.parametrize("name", STATES)
def test_derivatives_are_those_of_one_side(name, integrator):
    xml, at = STATES[name]
    s = rbd.load_mjcf(xml.replace("<option ", f'<option integrator="{integrator}" '))
    check(s, at)


TOGETHER = {
    "a box at rest on a table": ["a box at rest on a table"],
    "a box that touches in no gravity": ["a box that touches in no gravity"],
    "in gravity": ["a pendulum that hangs", "a free body that falls"],
    "in no gravity": [
        x for x in STATES if x not in LONG and 'gravity="0 0 0"' in STATES[x][0] and "box" not in x
    ],
}
"""States by the scene that has them side by side. One scene is compiled much faster than many."""


def side_by_side(names):
    """The scenes of these states in one world, 5 m apart, with the controls of all of them."""
    mujoco = pytest.importorskip("mujoco")
    world = mujoco.MjSpec()
    at = {"u": []}
    for k, name in enumerate(names):
        xml, here = STATES[name]
        part = mujoco.MjSpec.from_string(xml)
        world.option.gravity = part.option.gravity
        nu = len(part.actuators)
        at["u"] += here.get("u", [0.0] * nu)
        at |= {key: x for key, x in here.items() if key == "steps"}
        world.attach(part, prefix=f"{k} ", frame=world.worldbody.add_frame(pos=[0, 5 * k, 0]))
    return rbd.contact.scene_of(world.compile()), at


@pytest.mark.parametrize("which", TOGETHER)
def test_derivatives_are_those_of_one_side_in_all_states_at_once(which):
    check(*side_by_side(TOGETHER[which]))


def check(s, at):
    """The derivative of a step is the difference of one side, in each entry."""
    plant = as_plant(s)
    u = jnp.array(at["u"]) if at.get("u") else jnp.zeros(s.nu)
    act = jnp.array(at["act"]) if "act" in at else jnp.zeros(s.na)
    dt, zero = s.dt, jnp.zeros(())

    def both():
        state = plant.start(s.q0, jnp.zeros(s.model.nv), dt, lambda *_: u)
        if s.na:
            state = State(state.q, state.v, (state.memory[0], act))
        if "steps" in at:
            state = jax.lax.fori_loop(
                0, at["steps"], lambda _, x: plant.step(zero, x, u, dt), state
            )
        n = plant.nx

        def step(z):
            return plant.step(zero, plant.integrate(state, z[:n]), u + z[n:], dt)

        end = step(jnp.zeros(n + s.nu))
        change = lambda z: plant.difference(end, step(z))  # noqa: E731
        h = 1e-6
        ways = h * jnp.eye(n + s.nu)
        sides = [
            jax.vmap(lambda w, k=k: change(k * w) / (k * h), out_axes=1)(ways) for k in (1, -1)
        ]
        fixed = jax.tree.map(jax.lax.stop_gradient, end)
        rate = lambda z: plant.difference(fixed, step(z))  # noqa: E731
        return jax.jacfwd(rate)(jnp.zeros(n + s.nu)), *sides

    J, up, down = map(np.asarray, jax.jit(both)())
    near = np.minimum(abs(J - up), abs(J - down))
    worst = np.unravel_index(near.argmax(), near.shape)
    assert near.max() < 2e-4 * max(1, abs(J).max()), (worst, J[worst], up[worst], down[worst])
