"""A humanoid with the joints, soles and sites of mjlab's G1, which stands in for it."""

LEG = (
    ("hip_pitch", "0 1 0", 0.1),
    ("hip_roll", "1 0 0", 0.03),
    ("hip_yaw", "0 0 1", 0.15),
    ("knee", "0 1 0", 0.15),
    ("ankle_pitch", "0 1 0", 0.3),
    ("ankle_roll", "1 0 0", 0.02),
)
WAIST = (("waist_yaw", "0 0 1", 0.0), ("waist_roll", "1 0 0", -0.03), ("waist_pitch", "0 1 0", 0.0))
ARM = (
    ("shoulder_pitch", "0 1 0", -0.2),
    ("shoulder_roll", "1 0 0", 0.03),
    ("shoulder_yaw", "0 0 1", 0.1),
    ("elbow", "0 1 0", 0.1),
    ("wrist_roll", "1 0 0", 0.1),
    ("wrist_pitch", "0 1 0", 0.03),
    ("wrist_yaw", "0 0 1", 0.03),
)


def chain(parts, side="", y=0.0, inner=""):
    """Nested bodies, each below its parent by a number (m), the first at a side of it."""
    text = inner
    for k, (name, axis, down) in reversed(list(enumerate(parts))):
        name = f"{side}_{name}" if side else name
        text = (
            f'<body name="{name}_link" pos="0 {y if k == 0 else 0} {-down}">'
            f'<joint name="{name}_joint" axis="{axis}"/>'
            f'<inertial pos="0 0 -0.05" mass="1" diaginertia="0.004 0.004 0.003"/>{text}</body>'
        )
    return text


def foot(side):
    """The seven capsules of a sole and its site."""
    capsules = "".join(
        f'<geom name="{side}_foot{k}_collision" type="capsule" size=".01" '
        f'fromto="-.05 {0.009 * (k - 4)} -.03 .12 {0.009 * (k - 4)} -.03"/>'
        for k in range(1, 8)
    )
    return f'{capsules}<site name="{side}_foot" pos=".04 0 -.042"/>'


def like_g1() -> str:
    """Its MJCF."""
    legs = "".join(chain(LEG, side, y, foot(side)) for side, y in (("left", 0.1), ("right", -0.1)))
    arms = "".join(chain(ARM, side, y) for side, y in (("left", 0.15), ("right", -0.15)))
    return (
        '<mujoco><worldbody><body name="pelvis"><freejoint/>'
        '<inertial pos="0 0 0" mass="4" diaginertia="0.02 0.02 0.02"/>'
        f"{legs}{chain(WAIST, inner=arms)}</body></worldbody></mujoco>"
    )
