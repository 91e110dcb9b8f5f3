"""Broken and odd URDFs: each is refused with a message that says what, where and what to do."""

import io
import warnings

import numpy as np
import pytest

import rbd_jax as rbd
from rbd_jax.io import load_urdf
from rbd_jax.io._urdf import read_urdf

INERTIAL = (
    '<inertial><mass value="1"/>'
    '<inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial>'
)
A, B, C = (f'<link name="{x}">{INERTIAL}</link>' for x in "abc")
ENDS = '<parent link="a"/><child link="b"/>'


def joint(inside="", name="j", kind="revolute", ends=ENDS):
    return f'<joint name="{name}" type="{kind}">{ends}{inside}</joint>'


def ends(parent, child):
    return f'<parent link="{parent}"/><child link="{child}"/>'


def robot(*parts, attributes='name="r"'):
    return f"<robot {attributes}>\n" + "\n".join(parts) + "\n</robot>"


def inertial(mass='<mass value="1"/>', I='ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"'):
    return f'<link name="b"><inertial>{mass}<inertia {I}/></inertial></link>'


BAD = {
    # the file
    "empty": ("", "<string>: is empty"),
    "blank": ("  \n ", "is empty"),
    "only_nul": ("\0\0", "is empty"),
    "no_such_file": ("no/such/robot.urdf", "no/such/robot.urdf'.*No such file.*starts with '<'"),
    "not_xml": ("<robot name='r'><link name='a'></robot>", "string>:1: is not well-formed.*link"),
    "cut_off": ("<robot name='r'>\n<link name='a'/>\n", "is not well-formed XML"),
    "two_roots": ("<robot name='r'/>\n<robot name='s'/>", "string>:2: is not well-formed XML"),
    "text_after": (robot(A) + "\nstray", "is not well-formed XML"),
    "open_comment": (robot(A, "<!-- open"), "is not well-formed XML"),
    "doctype": ("\n<!DOCTYPE robot>" + robot(A), "string>:2: has a DOCTYPE.*remove it"),
    "entity": (
        '<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/passwd">]>' + robot(A, "&x;"),
        "has a DOCTYPE or an entity",
    ),
    "unknown_entity": (robot("<link name='&x;'/>"), "well-formed XML: Entity 'x' not defined"),
    "utf16": (robot(A).encode("utf-16")[:-1], "is not utf-16 text"),
    "latin1": (robot(A).encode() + b"<!-- \xe9 -->", "is not utf-8 text.*save it as UTF-8"),
    "encoding": (b"<?xml version='1.0' encoding='x-no'?>" + robot(A).encode(), "x-no"),
    # the root
    "sdf": ("<sdf version='1.7'/>", "<sdf> is not a URDF: its root element must be <robot>"),
    "mujoco": ("<mujoco model='m'/>", "root element must be <robot>"),
    "no_links": (robot(), "robot 'r': it has no links; a robot needs at least one <link>"),
    # xacro
    "xacro_macro": (
        robot(A, '<xacro:include filename="x"/>', attributes='xmlns:xacro="http://ros.org/xacro"'),
        r"string>:3: <include> holds xacro that was not expanded; run `xacro",
    ),
    "xacro_undeclared": (robot(A, "<xacro:arm/>"), "<arm> of robot 'r' holds xacro"),
    "xacro_prefix": (
        robot(A, "<x:arm/>", attributes='xmlns:x="http://www.ros.org/wiki/xacro"'),
        "holds xacro",
    ),
    "dollar_value": (robot(A, inertial('<mass value="${m}"/>')), r"value='\$\{m\}' holds xacro"),
    "dollar_arg": (
        robot(A, B, joint('<origin xyz="$(optenv X 0) 0 0"/>')),
        r"<origin> of joint 'j' xyz=.*holds xacro",
    ),
    "dollar_name": (robot('<link name="${p}a"/>'), "holds xacro"),
    # names
    "link_without_name": (robot("<link/>"), "string>:2: <link> .* has no name attribute; give"),
    "link_with_empty_name": (robot('<link name=""/>'), "<link> of robot 'r' has no name attribute"),
    "joint_without_name": (robot(A, '<joint type="fixed"/>'), "<joint> .* has no name attribute"),
    "joint_without_type": (robot(A, '<joint name="j"/>'), "<joint name='j'> has no type attribute"),
    "unknown_type": (
        robot(A, B, joint(kind="hinge")),
        "<joint name='j'> has the unknown type 'hinge'; known: fixed, revolute",
    ),
    "no_parent": (robot(A, B, joint(ends='<child link="b"/>')), "'j'> has no <parent link="),
    "no_child": (robot(A, B, joint(ends='<parent link="a"/>')), "'j'> has no <child link="),
    "no_parent_link": (
        robot(A, B, joint(ends='<parent/><child link="b"/>')),
        "<parent> of joint 'j' has no link attribute",
    ),
    "twice_a_link": (robot(A, A), "string>:2, 3: robot 'r': link name 'a' is used more than once"),
    "twice_a_joint": (
        robot(A, B, C, joint(), joint(ends=ends("b", "c"))),
        "string>:5, 6: .*joint name 'j' is used more than once; rename",
    ),
    # the tree
    "unknown_parent": (
        robot(A, B, joint(ends=ends("x", "b"))),
        "string>:4: robot 'r': joint 'j' names the parent link 'x', which does not exist",
    ),
    "unknown_child": (robot(A, B, joint(ends=ends("a", "x"))), "child link 'x', which does not"),
    "two_trees": (robot(A, B, C, joint()), "2 root links .'a', 'c'.; join them"),
    "loop": (
        robot(A, B, C, joint(), joint(name="k", ends=ends("a", "c")),
              joint(name="l", ends=ends("c", "b"))),
        "link 'b' is the child of 2 joints .'j', 'l'.: a kinematic loop. Cut it",
    ),
    "cycle": (robot(A, B, joint(), joint(name="k", ends=ends("b", "a"))), "form a cycle; remove"),
    "self": (robot(A, joint(ends=ends("a", "a"))), "form a cycle"),
    "cycle_apart": (
        robot(A, B, C, joint(ends=ends("b", "c")), joint(name="k", ends=ends("c", "b"))),
        r"links \['b', 'c'\] hang on a cycle",
    ),
    # numbers
    "nan": (robot(A, inertial('<mass value="nan"/>')), "<mass> .*value: 'nan' is not a number"),
    "inf": (robot(A, B, joint('<limit lower="-inf"/>')), "leave a limit out for none"),
    "overflow": (robot(A, B, joint('<limit lower="-1e999"/>')), "lower: '-1e999' is not a number"),
    "underscore": (robot(A, B, joint('<axis xyz="1_0 0 0"/>')), "'1_0' is not a number"),
    "hex": (robot(A, B, joint('<axis xyz="0x1 0 0"/>')), "'0x1' is not a number"),
    "comma": (robot(A, B, joint('<axis xyz="0, 0, 1"/>')), "xyz: '0,' is not a number"),
    "decimal_comma": (robot(A, inertial('<mass value="1,5"/>')), "'1,5' is not a number"),
    "unicode_digit": (robot(A, inertial('<mass value="\u0661"/>')), "is not a number"),
    "unit": (robot(A, inertial('<mass value="1 kg"/>')), "'kg' is not a number"),
    "two_of_three": (robot(A, B, joint('<origin xyz="1 2"/>')), "xyz='1 2' must be 3 numbers"),
    "four_of_three": (robot(A, B, joint('<origin rpy="1 2 3 4"/>')), "must be 3 numbers"),
    "two_of_one": (robot(A, inertial('<mass value="1 2"/>')), "must be one number"),
    "empty_number": (robot(A, inertial('<mass value=""/>')), "value='' must be one number"),
    "empty_axis": (robot(A, B, joint('<axis xyz=""/>')), "xyz='' must be 3 numbers"),
    # physics
    "zero_axis": (robot(A, B, joint('<axis xyz="0 0 0"/>')), "joint 'j' has a zero axis; give"),
    "negative_mass": (
        robot(A, inertial('<mass value="-1"/>')),
        "<inertial> of link 'b'.* has the negative mass -1 kg; correct it",
    ),
    "no_mass": (robot(A, inertial("")), "link 'b' has no <mass value='...'>; add it"),
    "mass_without_value": (robot(A, inertial("<mass/>")), "has no <mass value='...'>"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_refused(name):
    source, message = BAD[name]
    with pytest.raises(rbd.RobotDescriptionError, match=message):
        read_urdf(source)


def test_messages_name_the_file_and_line(tmp_path):
    path = tmp_path / "robot.urdf"
    path.write_text(robot(A, B, joint('\n<axis xyz="0 0 z"/>')))
    with pytest.raises(rbd.RobotDescriptionError, match=r"robot\.urdf:5: <axis> of joint 'j'"):
        read_urdf(path)
    with pytest.raises(rbd.RobotDescriptionError, match="is a directory; give the path"):
        read_urdf(tmp_path)
    with pytest.raises(TypeError, match="source"):
        read_urdf(3)
    with pytest.raises((TypeError, ValueError), match="mimic"):
        load_urdf(robot(A), mimic="no")


FORGIVEN = {
    "blank_lines_first": "\n\n <?xml version='1.0'?>" + robot(A),
    "nul_last": robot(A) + "\n\0",
    "byte_order_mark": "\ufeff<?xml version='1.0' encoding='utf-8'?>" + robot(A),
    "dashes_in_comment": robot(A, "<!-- a -- b -->"),
    "comment_first": "<!-- c --><?pi x?>" + robot(A),
    "undeclared_prefix": robot(A, '<drake:joint name="x" o:k="1"/>', B, joint()),
    "default_namespace": robot(A, attributes='name="r" xmlns="http://www.ros.org"'),
    "xacro_declared_only": robot(A, attributes='name="r" xmlns:xacro="http://ros.org/wiki/xacro"'),
    "no_robot_name": robot(A, attributes=""),
    "cdata": robot(A, "<gazebo><![CDATA[ <!-- ${x} ]]></gazebo>"),
    "others": robot(A, "<transmission><joint/></transmission><gazebo/><material name='m'/>"),
    "nested_link": robot(A, "<gazebo><link/><joint/></gazebo>"),
    "newline_in_vector": robot(A, B, joint('<axis xyz="0\n\t0 +1."/>')),
    "bytes": robot(A).encode(),
    "utf16": ("<?xml version='1.0' encoding='utf-16'?>" + robot(A)).encode("utf-16"),
    "latin1": "<?xml version='1.0' encoding='latin-1'?><!-- \xe9 -->".encode("latin-1")
    + robot(A).encode(),
    "windows_lines": robot(A).replace("\n", "\r\n"),
    "meshes": robot('<link name="a"><visual><geometry><mesh filename="no://x"/></geometry></visual>'
                    "<collision><geometry><capsule/></geometry></collision></link>"),
    "axis_of_fixed": robot(A, B, joint('<axis xyz="0 0 0"/><limit lower="x"/>', kind="fixed")),
    "one_name": robot(A, B, joint(name="a")),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGIVEN)
def test_forgiven(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        spec = read_urdf(FORGIVEN[name])
    assert spec.links[0].name == "a"


def test_open_files_and_unicode(tmp_path):
    text = robot('<link name="bras_é_腕"/>')
    path = tmp_path / "é.urdf"
    path.write_text(text, encoding="utf-8")
    for source in (path, str(path), io.StringIO(text), io.BytesIO(text.encode())):
        assert read_urdf(source).links[0].name == "bras_é_腕"
    with path.open("rb") as file:
        assert read_urdf(file).links[0].name == "bras_é_腕"


ODD = {
    "inverted": (robot(A, B, joint('<limit lower="1" upper="-1"/>')), "lower >= upper.*'j'"),
    "equal": (robot(A, B, joint('<limit lower="0" upper="0"/>')), "read as no position limit"),
    "zero_effort": (robot(A, B, joint('<limit effort="0" velocity="1"/>')), "<= 0, read as none"),
    "axis_twice": (
        robot(A, B, joint('<axis xyz="0 1 0"/><axis xyz="1 0 0"/>')),
        "<axis> is repeated and its first occurrence used: 'j'",
    ),
    "mass_twice": (
        robot(A, inertial('<mass value="1"/><mass value="2"/>'), joint()),
        "<mass> is repeated and its first occurrence used: 'b'",
    ),
    "no_inertia": (
        robot(A, '<link name="b"><inertial><mass value="1"/></inertial></link>', joint()),
        "components of <inertia> missing, read as 0: 'b'",
    ),
    "no_izz": (robot(A, inertial(I='ixx="1" iyy="1"'), joint()), "components of <inertia> missing"),
    "negative_damping": (robot(A, B, joint('<dynamics damping="-1"/>')), "negative damping"),
    "massless_inertia": (
        robot(A, inertial('<mass value="0"/>'), joint()), "an inertia but no mass .kept.*: 'b'"
    ),
    "indefinite": (
        robot(A, inertial(I='ixx="1" iyy="1" izz="-.5"'), joint()), "negative principal moment.*'b'"
    ),
    "triangle": (
        robot(A, inertial(I='ixx="1" iyy="1" izz="3"'), joint()), "triangle inequality .kept.: 'b'"
    ),
    "dead_leaf": (
        robot(A, B, '<link name="c"/>', joint(), joint(name="k", ends=ends("b", "c"))),
        "mass matrix singular.*fixed.: 'k'$",
    ),
    "spinning_point": (
        robot(A, inertial(I='ixx="0" ixy="0" ixz="0" iyy="0" iyz="0" izz="0"'),
              joint('<origin rpy="0.1 0.2 0.3"/>')),
        "mass matrix singular.*: 'j'$",
    ),
    "two_on_one_axis": (
        robot(A, '<link name="b"/>', C, joint(), joint(name="k", ends=ends("b", "c"))),
        "mass matrix singular.*: 'j', 'k'$",
    ),
    "gimbal": (
        robot(A, *(f'<link name="{n}"/>' for n in "mn"), C,
              joint('<axis xyz="0 0 1"/>', ends=ends("a", "m")),
              joint('<axis xyz="1 0 0"/>', name="k", ends=ends("m", "n")),
              joint('<axis xyz="0 1 0"/>', name="l", ends=ends("n", "c"))),
        "gimbal lock.*: 'j', 'k', 'l'$",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_odd_is_read_with_a_warning(name):
    source, message = ODD[name]
    with pytest.warns(rbd.RobotDescriptionWarning, match=message):
        load_urdf(source)


def test_what_was_read_of_the_odd_ones():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spec = {name: read_urdf(source) for name, (source, _) in ODD.items()}
    assert spec["inverted"].joints[0].lower is None
    assert spec["equal"].joints[0].upper is None
    assert (spec["zero_effort"].joints[0].effort, spec["zero_effort"].joints[0].velocity) == (
        None,
        1,
    )
    np.testing.assert_array_equal(spec["axis_twice"].joints[0].axis, [0, 1, 0])
    assert spec["no_inertia"].links[1].mass == 1
    assert not spec["no_inertia"].links[1].inertia.any()
    np.testing.assert_array_equal(np.diag(spec["no_izz"].links[1].inertia), [1, 1, 0])


def test_a_massless_link_between_others_and_a_bad_link_on_a_good_one_are_fine():
    bad = inertial(I='ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="3"')
    middle = '<link name="m"/>'
    joints = [
        joint(ends=ends("a", "m"), inside='<axis xyz="0 0 1"/>'),
        joint(name="k", ends=ends("m", "c")),
        joint(name="f", kind="fixed", ends=ends("c", "b"), inside='<origin xyz="0 0 2"/>'),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_urdf(robot(A, middle, C, bad, *joints))
        load_urdf(robot(A), floating_base=True)
