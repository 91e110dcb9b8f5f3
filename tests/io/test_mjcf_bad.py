"""Every feature of MJCF that is not supported is refused, with the element and the remedy."""

import warnings

import pytest

import rbd_jax as rbd

pytest.importorskip("mujoco")

XML = """<mujoco>{option}<worldbody><geom name="floor" type="plane" size="1 1 1"/>
<body name="x" pos="0 0 1"><site name="s"/>
<joint name="j" {joint}/><geom name="g" size=".1" {geom}/>
<body name="y"><joint name="b" type="ball"/><geom name="h" size=".01"/></body></body>
<body name="z" pos="0 3 3"><joint name="f" type="free" {free}/><geom name="i" size=".1"/></body>
{world}</worldbody>{more}</mujoco>"""
PARTS = ("option", "joint", "geom", "free", "world", "more")
ROPE = '<tendon><fixed name="rope" {}><joint joint="j" coef="1"/></fixed></tendon>'
CLOTH = """<flexcomp name="cloth" type="grid" count="3 3 1" spacing=".1 .1 .1" radius=".01" dim="2"
mass="1" pos="0 0 2"/>"""
RING = """<extension><plugin plugin="mujoco.sdf.torus"><instance name="ring">
<config key="radius1" value=".4"/><config key="radius2" value=".1"/></instance></plugin></extension>
<asset><mesh name="ring"><plugin instance="ring"/></mesh></asset>"""


def actuator(text):
    return {"more": f"<actuator>{text}</actuator>"}


CASES = {
    "polynomial stiffness: j": {"joint": 'stiffness="1 2"'},
    "polynomial damping: j": {"joint": 'damping="1 2"'},
    "adhesion: g": {"geom": 'adhesion="1"'},
    "polynomial stiffness: rope": {"more": ROPE.format('stiffness="1 2"')},
    "polynomial damping: rope": {"more": ROPE.format('damping="1 2"')},
    "flex: 1 of them": {"world": CLOTH},
    r"another transmission: a \(body\)": actuator('<adhesion name="a" body="x" ctrlrange="0 1"/>'),
    r"another transmission: a \(so3\)": actuator('<orientation name="a" joint="b" kp="1"/>'),
    r"activation dynamics: a \(user\)": actuator('<general name="a" joint="j" dyntype="user"/>'),
    r"gain or bias of another kind: a \(user\)": actuator(
        '<general name="a" joint="j" gaintype="user"/>'
    ),
    "actuator delay: a": actuator('<motor name="a" joint="j" delay=".1" nsample="2"/>'),
    "actuator damping: a": actuator('<motor name="a" joint="j" damping=".1"/>'),
    "actuator armature: a": actuator('<motor name="a" joint="j" armature=".1"/>'),
    "option flag: override": {"option": '<option><flag override="enable"/></option>'},
    "option flag: sleep": {"option": '<option><flag sleep="enable"/></option>'},
    r"such as g \(sphere\) with ring \(sdf\)": {
        "more": RING,
        "world": '<geom name="ring" type="sdf" mesh="ring"><plugin instance="ring"/></geom>',
    },
}


@pytest.mark.parametrize("words", CASES)
@pytest.mark.filterwarnings("ignore:flex")
def test_refused_with_element_and_remedy(words):
    xml = XML.format(**dict.fromkeys(PARTS, "") | CASES[words])
    with pytest.raises(rbd.RobotDescriptionError, match=rf"{words}.*[Cc]hange.* drop="):
        rbd.load_mjcf(xml)


BAD = {
    "XML_ERROR_MISMATCHED_ELEMENT": "<mujoco><worldbody>",
    "mass and inertia of moving bodies": "<mujoco><worldbody><body><freejoint/></body>"
    "</worldbody></mujoco>",
    "absent.stl": XML.format(
        **dict.fromkeys(PARTS, "") | {"more": '<asset><mesh name="m" file="absent.stl"/></asset>'}
    ),
    "absent.xml": '<mujoco><include file="absent.xml"/></mujoco>',
    "range.*in joint": XML.format(
        **dict.fromkeys(PARTS, "") | {"joint": 'range="1 -1" limited="true"'}
    ),
    "invalid keyword: 'square'": XML.format(
        **dict.fromkeys(PARTS, "") | {"option": '<option cone="square"/>'}
    ),
    "must be positive in geom": XML.format(
        **dict.fromkeys(PARTS, "") | {"geom": 'size="-1"'}
    ).replace('size=".1" size="-1"', 'size="-1"'),
}


@pytest.mark.parametrize("words", BAD)
def test_files_that_mujoco_refuses(words):
    message = f"(?s)MuJoCo refuses the XML string.*{words}"
    with pytest.raises(rbd.RobotDescriptionError, match=message):
        rbd.load_mjcf(BAD[words])


def test_absent_pictures_do_not_matter():
    """A texture that is not there is never opened."""
    look = """<asset><texture name="t" type="2d" file="absent.png"/>
    <material name="m" texture="t"/></asset>"""
    xml = XML.format(**dict.fromkeys(PARTS, "") | {"more": look, "geom": 'material="m"'})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rbd.load_mjcf(xml).model.nv == 10
