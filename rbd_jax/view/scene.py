"""The 3D scene: what is drawn for a motion, and how it is moved to a time. Needs viser."""

from typing import Any

import numpy as np

from ..algorithms.energy import total_mass
from ..model import Model
from .motion import Arrows, Motion, Poses
from .shapes import INK, Part

FORCE, CONTACT = (228, 87, 46), (31, 158, 137)
_SMALL = 1e-3  # arrows shorter than this part of the robot are not drawn


class Scene:
    """Draws robots, frames and arrows once, and moves them to the sample of a time."""

    def __init__(
        self,
        server: Any,
        model: Model,
        motion: Motion,
        poses: Poses,
        parts: list[Part],
        frames: tuple[int, ...],
        forces: Arrows | None,
        contacts: Arrows | None,
        spacing: float | None,
    ):
        self._server, self._model, self._poses = server, model, poses
        self.size, low, middle = self._extent(parts)
        spacing = self.size if spacing is None else spacing
        self.offsets = grid(len(motion.q), spacing)
        self._frames = frames
        newtons = self._newtons(forces, contacts)
        self._arrows = {}
        with server.atomic():
            self._floor(low)
            self._parts = [(p.body, self._mesh(k, p)) for k, p in enumerate(parts)]
            self._axes = self._add_axes() if frames else None
            for name, arrows, color in (("forces", forces, FORCE), ("contacts", contacts, CONTACT)):
                if arrows is not None:
                    self._arrows[name] = self._add_arrows(name, arrows, color, newtons)
            self.show(0)
        self._look(middle)

    @property
    def layers(self) -> dict[str, list[Any]]:
        """The drawn things that may be hidden together, by name."""
        found = {"robot": [handle for _, handle in self._parts]}
        if self._axes is not None:
            found["frames"] = [self._axes]
        return found | {name: list(handles) for name, (_, *handles) in self._arrows.items()}

    def show(self, k: int) -> None:
        """Move everything to the sample ``k``; clients apply it in one piece."""
        with self._server.atomic():
            for body, handle in self._parts:
                handle.batched_wxyzs = self._poses.wxyz[:, k, body].astype(np.float32)
                handle.batched_positions = self._at(k, body)
            if self._axes is not None:
                self._axes.batched_wxyzs, self._axes.batched_positions = self._frame_poses(k)
            for ends, lines, dots in self._arrows.values():
                segments = ends[:, k] + self.offsets[:, None, None]
                length = np.linalg.norm(segments[..., 1, :] - segments[..., 0, :], axis=-1)
                shown = segments[length > _SMALL * self.size]
                lines.points = shown.astype(np.float32)
                dots.points = shown[:, 0].astype(np.float32)

    def _at(self, k: int, body: int) -> np.ndarray:
        return (self._poses.position[:, k, body] + self.offsets).astype(np.float32)

    def _mesh(self, k: int, part: Part):
        of_body = (*self._model.body_names, "world")[part.body]
        return self._server.scene.add_batched_meshes_simple(
            f"/robot/{of_body}/{k}", part.vertices, part.faces,
            self._poses.wxyz[:, 0, part.body], self._at(0, part.body),
            batched_colors=part.color, opacity=part.opacity if part.opacity < 1 else None,
            flat_shading=True, side="double", lod="off",
        )  # fmt: skip

    def _frame_poses(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        from viser import transforms

        wxyzs, positions = [], []
        for f in self._frames:
            body = self._model.topology.frame_bodies[f]
            R = self._poses.R[:, k, body]
            positions.append(self._at(k, body) + R @ np.asarray(self._model.frame_p[f], float))
            R = R @ np.asarray(self._model.frame_R[f], float)
            wxyzs.append(transforms.SO3.from_matrix(R).wxyz)
        return np.concatenate(wxyzs).astype(np.float32), np.concatenate(positions).astype("f4")

    def _add_axes(self):
        wxyzs, positions = self._frame_poses(0)
        length = 0.12 * self.size
        return self._server.scene.add_batched_axes(
            "/frames", wxyzs, positions, axes_length=length, axes_radius=0.04 * length
        )

    def _newtons(self, *drawn: Arrows | None) -> float:
        """The force (N) whose arrow is as long as the robot, at least twice its weight."""
        weight = float(total_mass(self._model)) * float(np.linalg.norm(self._model.gravity))
        longest = [np.linalg.norm(x.vectors, axis=-1).max() for x in drawn if x is not None]
        return 2 * weight if weight > 0 else max(longest, default=1.0) or 1.0

    def _add_arrows(self, name: str, arrows: Arrows, color, newtons: float):
        tips = arrows.points + arrows.vectors * (self.size / newtons)
        ends = np.stack([arrows.points, tips], axis=-2)
        shaft = 0.008 * self.size
        scene = self._server.scene
        lines = scene.add_arrows(
            f"/{name}/arrows", ends[:, 0].reshape(-1, 2, 3), color,
            shaft_radius=shaft, head_radius=2.5 * shaft, head_length=6 * shaft,
        )  # fmt: skip
        dots = scene.add_point_cloud(
            f"/{name}/points", ends[:, 0, :, 0].reshape(-1, 3), color,
            point_size=4 * shaft, point_shape="circle", precision="float32",
        )  # fmt: skip
        return ends, lines, dots

    def _extent(self, parts: list[Part]) -> tuple[float, float, np.ndarray]:
        """Size of a robot (m), lowest point of all, middle of the first robot at the start."""
        R, p = self._poses.R[0, 0], self._poses.position[0, 0]
        corners = [_corners(x.vertices) @ R[x.body].T + p[x.body] for x in parts if len(x.vertices)]
        points = np.concatenate([*corners, p[:-1]]) if len(p) > 1 else np.zeros((1, 3))
        low, high = points.min(0), points.max(0)
        size = float(np.linalg.norm(high - low))
        return (size if size > 1e-3 else 1.0), float(low[2]), (low + high) / 2

    def _floor(self, height: float) -> None:
        width = max(10 * self.size, 2.5 * float(np.abs(self.offsets).max(initial=0.0)))
        cell = 10.0 ** np.floor(np.log10(self.size))
        self._server.scene.add_grid(
            "/floor", width=width, height=width, plane="xy", position=(0, 0, height),
            cell_size=cell / 2, section_size=5 * cell, cell_color=(222, 226, 234),
            section_color=tuple(x + 110 for x in INK), shadow_opacity=0.2,
        )  # fmt: skip

    def _look(self, middle: np.ndarray) -> None:
        spread = float(np.linalg.norm(np.ptp(self.offsets, axis=0)))
        away = 1.15 * self.size + 0.5 * spread
        camera = self._server.initial_camera
        camera.look_at = tuple(middle)
        camera.position = tuple(middle + away * np.array([0.75, -0.55, 0.35]))


def grid(count: int, spacing: float) -> np.ndarray:
    """Where so many robots stand: a square on the floor about the origin, (count, 3)."""
    columns = int(np.ceil(np.sqrt(count)))
    k = np.arange(count)
    places = np.stack([k // columns, k % columns, np.zeros(count)], axis=1) * spacing
    return places - (places.min(0) + places.max(0)) / 2


def _corners(vertices: np.ndarray) -> np.ndarray:
    """The eight corners of the box around some points."""
    pick = np.array(np.meshgrid([0, 1], [0, 1], [0, 1])).reshape(3, -1).T
    return np.where(pick, vertices.max(0), vertices.min(0))
