"""Scenes in MJCF that hold every kind of joint, shape, constraint and actuator."""

OPTION = '<option tolerance="1e-14" iterations="300" ls_tolerance="1e-10" ls_iterations="200" {}/>'

# Three free bodies, a tree of every joint kind, an arm, actuators of every kind, and equalities.
EVERYTHING = (
    """<mujoco><compiler autolimits="true"/>"""
    + OPTION
    + """<worldbody><geom type="plane" size="5 5 1"
  condim="1" friction="0.7 .01 .002" contype="3" conaffinity="3"/>
<body name="a" pos="0 0 .4" quat="1 .1 .2 .3"><freejoint name="fa"/>
  <geom type="box" size=".1 .05 .05" contype="0" conaffinity="0"/>
  <body name="b" pos=".2 0 0"><joint name="b1" type="ball" range="0 40" damping=".05"
    pos="0 0 .02" stiffness=".5" springref="0"/>
    <geom type="sphere" size=".06" pos=".1 0 0" condim="4"/>
    <site name="sb" pos=".1 0 .05" quat="1 .2 0 0"/>
    <body name="c" pos=".2 0 0">
      <joint name="h1" axis="0 1 0" range="-30 30" ref="5" stiffness="2" springref="10"/>
      <joint name="s1" type="slide" axis="1 0 0" range="-.05 .05" frictionloss=".3" damping="1"/>
      <geom type="capsule" size=".03 .08" pos=".1 0 0" condim="3"/></body></body></body>
<body name="d" pos=".5 .3 .4"><joint name="h2" axis="0 0 1" frictionloss=".02"/>
  <geom type="sphere" size=".07" pos=".1 0 0"/>
  <body name="e" pos=".2 0 0"><joint name="h3" axis="0 1 0" armature=".01"/>
    <geom type="capsule" size=".03 .08" pos=".1 0 0"/><site name="se" pos=".2 0 0"/></body></body>
<body name="f" pos="-.5 0 .1"><freejoint/><geom type="sphere" size=".1" condim="6"/></body>
<body name="g" pos="-.5 0.01 .28"><freejoint/>
  <geom type="capsule" size=".05 .1" euler="90 0 10" condim="3" solref="-500 -20"/></body>
<body name="h" pos="-.45 0.0 .38"><freejoint/>
  <geom type="capsule" size=".05 .1" euler="0 90 10" condim="1" margin=".01"/></body>
<body name="i" pos="1 0 .2" quat="1 .3 .2 .1"><freejoint/>
  <geom type="{shape}" size=".1 .07 .05" condim="3" solimp=".8 .95 .01 .3 3"
  contype="2" conaffinity="2"/></body>
</worldbody>
<actuator>
 <motor joint="h1" gear="2" ctrlrange="-1 1"/><position joint="s1" kp="20" kv="1" forcerange="-2 2"/>
 <velocity joint="h2" kv=".3"/>
 <general joint="h3" gainprm="3" biastype="affine" biasprm=".1 -2 -.1" gear="1.5"/>
 <motor joint="b1" gear="1 .5 .2"/><motor joint="fa" gear="1 .2 .3 .1 .1 .1"/>
 <motor site="sb" gear="1 2 0 .1 0 .2"/>
</actuator>
<equality>{equality}</equality><contact><exclude body1="d" body2="f"/></contact>
<keyframe><key name="start" ctrl="1 .04 .2 .1 .3 .5 .2"/></keyframe></mujoco>"""
)

EQUALITIES = """<connect body1="c" body2="d" anchor=".2 0 0"/><weld body1="a" torquescale=".3"/>
<connect site1="se" site2="sb"/><joint joint1="h1" joint2="h2" polycoef=".1 .5 .2 .1 0"/>
<joint joint1="h3" polycoef=".2 0 0 0 0"/>"""


def everything(option: str = "", shape: str = "box", equality: str = "") -> str:
    """The XML with attributes of ``<option>``, the shape of the last body, and equalities."""
    return EVERYTHING.format(option, shape=shape, equality=equality)
