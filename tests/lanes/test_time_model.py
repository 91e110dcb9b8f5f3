"""The model of the time on a GPU: what it counts in small programs, and what it predicts."""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import rbd_jax as rbd
from benchmarks._report import RESULTS
from benchmarks.ptx import FUNCTIONS, closed
from rbd_jax.algorithms.formulations import formulation

pytest.importorskip("llvmlite")

from support.lane_operations import PROGRAMS  # noqa: E402
from support.lane_programs import numbers  # noqa: E402
from support.lane_threads import program  # noqa: E402

from benchmarks import gpu_model  # noqa: E402
from benchmarks.gpu_model import Kernel, Row  # noqa: E402
from rbd_jax.lanes import Unsupported  # noqa: E402
from rbd_jax.lanes.frontend._read_program import read_program  # noqa: E402
from rbd_jax.lanes.gpu import _gpu_kernels, _ptx, _time_model as model  # noqa: E402
from rbd_jax.lanes.gpu._time_model import Constants, Counts, Work  # noqa: E402

TEAMS = (1, 2, 4, 8, 16, 32)


@pytest.fixture(autouse=True)
def ordinary_promotion():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def work(f, *args, team):
    return model.work_of(_ptx.functions(program(f, *args), team))


TEXT = """
define internal float @twice(float %x) nounwind {
  %y = fmul float %x, 2.0
  %z = fdiv float %y, 3.0
  ret float %z
}
define internal void @sample(ptr %args.0, ptr %scratch, i64 %thread) #0 {
entry:
  %v1 = trunc i64 %thread to i32
  br label %rounds2
rounds2:
  %v5 = phi i32 [ %v1, %entry ], [ %v6, %round3 ]
  %v7 = icmp ult i32 %v5, 20
  br i1 %v7, label %round3, label %done4
round3:
  %v8 = zext i32 %v5 to i64
  %v9 = getelementptr float, ptr %args.0, i64 %v8
  %v10 = load float, ptr %v9, align 4
  %v11 = call float @twice(float %v10)
  %v12 = getelementptr float, ptr %scratch, i64 %v8
  store float %v11, ptr %v12, align 4
  %v6 = add nuw i32 %v5, 8
  br label %rounds2
done4:
  call void @lanes.meet.team()
  br label %while13
while13:
  %v16 = load float, ptr %scratch, align 4
  %v17 = fcmp olt float %v16, 1.0
  br i1 %v17, label %do14, label %done15
do14:
  br label %loop18
loop18:
  %k20 = phi i64 [ 6, %do14 ], [ %v21, %loop18 ]
  %v22 = getelementptr i8, ptr %scratch, i64 4
  %v23 = load float, ptr %v22, align 4
  %v24 = fmul float %v23, %v23
  %v25 = fadd float %v24, %v23
  %v26 = fadd float %v25, %v23
  store float %v26, ptr %scratch, align 4
  %v21 = add i64 %k20, -1
  %v27 = icmp ne i64 %v21, 2
  br i1 %v27, label %loop18, label %done19
done19:
  br label %while13
done15:
  ret void
}
"""


def test_a_text_is_counted_line_by_line():
    """20 rounds for 8 threads are 3; a loop from 6 that ends at 2 has 5 rounds."""
    a_round = 1 + 1 + (1 + 1) + (1 + 10) + 1 + 1 + 1  # compare, branch, load, call, store, ...
    step = 1 + 1 + 1 + 1 + (1 + 1 + 1)  # load, product, the second sum, store; the loop's own
    search = 1 + 1 + 1 + 5 * step  # what is tested, and the loop
    found = model.counts(TEXT, "sample", threads=8)
    assert found.issued == 3 * a_round + 1 + 2 * search  # and a meeting
    assert found.a_round == search
    assert found.meetings == 1
    assert found.own == 3 + 2 * (1 + 5 * 2)
    assert found.given == 3
    alone = model.counts(TEXT, "sample", threads=1)
    assert alone.issued - found.issued == 17 * a_round


@pytest.mark.parametrize("team, given", [
    (4, 2 * 6 + 6 + 2),  # two rows each, for which x is read once, and two results
    (8, 6 + 6 + 1),
    (16, 3 + 3 + 1),  # two threads divide a row
    (32, 2 + 2 + 1),  # four divide it; some of them have one term more
])  # fmt: skip
def test_threads_divide_a_product(team, given):
    """What a thread reads and writes for y = A x with 8 rows of 6."""
    A, x = jnp.ones((8, 6), jnp.float32), jnp.ones(6, jnp.float32)
    assert work(lambda A, x: A @ x, A, x, team=team).sample.given == given


def scan(length):
    def f(x, rows):
        step = lambda y, row: (jnp.sin(y[::-1]) + row, y)  # noqa: E731
        return lax.scan(step, x, rows)

    return f, jnp.ones(6, jnp.float32), jnp.ones((length, 6), jnp.float32)


def test_each_step_of_a_scan_counts_the_same():
    """A step reads a row, and reads and writes the carry thrice; the team meets twice.

    Behind the scan, each thread copies one of 8 rows of 6 into the result.
    """
    found = [np.array(work(*scan(n), team=8).sample) for n in (16, 24, 32)]
    one = Counts(*(found[1] - found[0]))
    np.testing.assert_array_equal(found[2] - found[1], one)
    assert one.meetings == 8 * 2
    assert one.own == 8 * 6 + 6
    assert one.given == 8 * 1 + 6


def test_rounds_of_loops_whose_end_data_decide():
    def f(x):
        inner = lambda s: (s[0] * 0.5, s[1] + 1)  # noqa: E731
        outer = lambda y: lax.while_loop(lambda s: s[0] > 2, inner, (y, y))[1] * 0.1  # noqa: E731
        return lax.while_loop(lambda y: y > 1, outer, x)

    nested = work(f, jnp.float32(3), team=1).sample
    assert nested.issued > model.ROUNDS * nested.a_round > 0
    once = work(lambda x: lax.while_loop(lambda y: y > 1, lambda y: y * 0.1, x), jnp.float32(3),
                team=1).sample  # fmt: skip
    assert nested.a_round > once.a_round > 0
    assert work(lambda x: x * 2, jnp.float32(3), team=1).sample.a_round == 0


def test_a_branch_that_is_left_out_where_nobody_takes_it_counts_once():
    """It is a loop of no round or one, and its instructions are those that it has when taken."""

    def long(x):
        for k in range(30):
            x = jnp.sin(x) + k
        return x

    one = work(long, jnp.float32(3), team=1).sample
    found = work(lambda x: lax.cond(x > 0, long, lambda x: x, x), jnp.float32(3), team=1).sample
    assert found.a_round == 0
    assert one.issued < found.issued < 1.1 * one.issued + 20


@pytest.mark.parametrize("size", [40, 96])
def test_more_threads_never_have_more_rounds(size):
    x = jnp.ones(size, jnp.float32)
    found = [work(lambda x: jnp.sqrt(x) + 1, x, team=t).sample.given for t in TEAMS]
    assert found == [2 * -(-size // t) for t in TEAMS]


def test_branches_count_and_math_functions_count_whole():
    x = jnp.ones(64, jnp.float32)
    plain, sine = (work(f, x, team=32).sample.issued for f in (jnp.abs, jnp.sin))
    assert sine > plain + 2 * 10


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_operation_is_counted(name):
    """No text stops the count, and a loop whose head is not known would be counted once."""
    x, y = (numbers((9, 4), "float32", seed)[0] for seed in (1, 2))
    for team in (1, 8, 32):
        try:
            made = _ptx.functions(program(PROGRAMS[name], x, y), team)
        except Unsupported:
            return  # functions of the C library
        found = model.work_of(made)
        assert found.sample.issued > 0 and found.sample.given > 0
        for label, kind in (("sample", team), ("prologue", _ptx.TOGETHER)):
            body = made.text.split(f"void @{label}(")[1].split("\n}")[0].splitlines()
            heads = [x[:-1] for x in body if re.fullmatch(r"(loop|rounds|while|once)\d+:", x)]
            assert set(heads) == set(model._loops(body, kind))


@pytest.mark.parametrize("team, scratch", [(1, 9000), (8, 3000), (16, 5000), (32, 90000)])
def test_predictions_grow_with_the_batch_and_with_the_work(team, scratch):
    usual = Work(team, scratch, 400, Counts(500), Counts(20000, 100, 5000, 500, 1000))
    times = [model.seconds(usual, n) for n in (1, 100, 1000, 4096, 10**4, 10**6, 10**7)]
    assert np.all(np.diff(times) >= 0) and times[-1] > 99 * times[3] > 0
    more = Work(team, scratch, 400, Counts(500), Counts(25000, 100, 5000, 500, 1000))
    assert model.seconds(more, 4096) > model.seconds(usual, 4096)
    # of very many samples, each costs the same
    assert times[-1] / times[-2] == pytest.approx(10, rel=0.02)


def test_what_leaves_the_chip_takes_at_least_the_time_of_copying():
    little = Work(8, 1000, 10**6, Counts(), Counts(10))
    assert model.seconds(little, 4096) == 4096 * 10**6 / model.BANDWIDTH


@pytest.mark.parametrize("team, scratch, samples", [
    (32, 16576, 13), (32, 43968, 5), (16, 9152, 24), (8, 2368, 88), (8, 59072, 3), (1, 9000, 256),
])  # fmt: skip
def test_how_many_samples_a_multiprocessor_holds(team, scratch, samples):
    """By 227 KiB on the chip, of which each block takes 1 KiB more, and by 65536 registers."""
    made = Work(team, scratch, 0, Counts(), Counts())
    assert made.resident == samples
    assert made.warps * made.resident / made.block <= model.THREADS / 32


def expected(robot, function):
    """The team that the rule takes, and what the model expects of each for 4096 robots."""
    m = getattr(rbd.samples, robot)(*([30] if robot == "chain" else []), dtype="float32")
    f, names = FUNCTIONS[function]
    with formulation("teams"):
        states = (jnp.zeros(m.nq if n == "q" else m.nv, m.dtype) for n in names.split())
        made = closed(m, f, *states)
        works = {t: model.work_of(_ptx.functions(read_program(*made), t)) for t in (8, 16, 32)}
        rule = _gpu_kernels.team_of(read_program(*made))
    return rule, {t: model.seconds(x, 4096) for t, x in works.items()}


@pytest.mark.parametrize("robot, function, best", [
    ("arm", "forward_dynamics", 8), ("quadruped", "inverse_dynamics", 16),
    ("chain", "inverse_dynamics", 32),
])  # fmt: skip
def test_model_and_rule_agree_on_small_and_large_robots(robot, function, best):
    """On an H200, 8 threads were the fastest for UR5, 16 for HyQ, and 32 for larger robots."""
    rule, times = expected(robot, function)
    assert rule == best == min(times, key=lambda t: times[t])


def test_model_is_sure_of_an_arm_of_seven_joints():
    """Its operations are just large enough for 16 threads; but seven rows are too few for them.

    So the columns become loops as well, with more instructions for each element.
    """
    rule, times = expected("arm", "inverse_dynamics")
    assert times[rule] > _gpu_kernels.SURE * min(times.values())


@pytest.mark.parametrize("samples, form", [(1024, ""), (65536, "thread")])
def test_one_thread_is_chosen_for_very_many_robots(samples, form):
    """Of 65536 Talos, one thread each took 1.9 ms, where teams should take more than twice that."""
    with gpu_model.as_on_a_gpu():
        (kernel,) = gpu_model.kernels_of(
            jax.vmap(rbd.forward_dynamics, (None, 0, 0, 0)), *large_robots()
        )
        found = kernel.taken(samples)
    assert found.form == form and (found.team == 1) == bool(form)


def large_robots():
    m = rbd.samples.chain(30, floating_base=True, dtype=jnp.float32)
    return m, jnp.tile(rbd.neutral(m), (2, 1)), *jnp.zeros((2, 2, m.nv), m.dtype)


def test_the_fit_finds_constants_again():
    """Also without the robot; a row that is wrong by a factor of two changes little."""
    true, rows = Constants(7.0, 1.5, 50.0), []
    for k, robot in enumerate("abc"):
        counted = Counts(2000.0 * (k + 1), 0, 500, 50)
        kernel = Kernel({16: Work(16, 3000 * (k + 1), 100, Counts(), counted)}, 16, True)
        for batch in (64, 1024, 4096, 32768):
            for timed, call in (("kernel", 0.0), ("in a row", 20.0)):
                time = gpu_model.microseconds([kernel], batch, true) + call
                rows.append(Row(robot, timed, batch, timed, time, [kernel]))
    names = "waiting", "sharing"
    found, calls = gpu_model.fit(rows, names)
    np.testing.assert_allclose([found.waiting, found.sharing], [7.0, 1.5], rtol=1e-3)
    assert calls["in a row"] == pytest.approx(20, rel=1e-3) and calls["kernel"] == 0
    times = gpu_model.held_out(rows, names, gpu_model.START, "robot")
    assert gpu_model.errors(rows, times)[1] < 1.001
    rows[0] = rows[0]._replace(measured=2 * rows[0].measured)
    times = [gpu_model.predicted(r, *gpu_model.fit(rows, names)) for r in rows]
    median, worst = gpu_model.errors(rows, times)
    assert median < 1.05 and 1.7 < worst < 2.1


def test_the_constants_are_those_of_the_stored_table():
    stored = json.loads((RESULTS / "gpu_model.json").read_text())
    rows = next(t["rows"] for t in stored["tables"] if t["title"] == "Constants and errors")
    found = {k: x for row in rows for k, x in row.items() if k in model.Constants._fields}
    assert found.keys() == set(model.Constants._fields)
    for name, x in found.items():
        assert getattr(model.FITTED, name) == pytest.approx(x, rel=5e-3), name
