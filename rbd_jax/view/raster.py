"""Triangles as pixels: a perspective camera, a depth buffer and flat shading, in NumPy alone."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt8

SKY, FLOOR, LINE = (246, 248, 251), (228, 232, 239), (203, 209, 220)
LIGHT = np.array([0.35, -0.45, 0.82])  # toward the light, a unit vector
FINER = 2  # a pixel is the mean of so many by so many
OPENING = 40.0  # of the picture, up and down (degrees)
_MOST = 2_000_000  # pixels of the bounding boxes of triangles at once


class Camera(NamedTuple):
    """A camera that is level: where it is, and what is in the middle of its picture (m)."""

    eye: Float[np.ndarray, "3"]
    target: Float[np.ndarray, "3"]

    @property
    def axes(self) -> Float[np.ndarray, "3 3"]:
        """Rows: right, up, and ahead, in the world."""
        ahead = self.target - self.eye
        ahead = ahead / np.linalg.norm(ahead)
        right = np.cross(ahead, [0.0, 0.0, 1.0])
        flat = np.linalg.norm(right)
        right = right / flat if flat > 1e-9 else np.array([1.0, 0.0, 0.0])
        return np.stack([right, np.cross(right, ahead), ahead])


class Background(NamedTuple):
    """What is behind everything: the color and the inverse depth (1/m) of each fine pixel."""

    colors: Float[np.ndarray, "n 3"]
    near: Float[np.ndarray, " n"]


def draw(
    camera: Camera,
    behind: Background,
    vertices: Float[np.ndarray, "n 3"],
    faces: Int[np.ndarray, "m 3"],
    colors: Float[np.ndarray, "m 3"],
    size: tuple[int, int],
) -> UInt8[np.ndarray, "h w 3"]:
    """A picture of triangles in the world.

    A pixel shows the nearest triangle (a depth buffer with perspective-correct depths), with a
    brightness by the angle between its normal and the light, the same on both sides. Triangles
    that reach behind the camera are left out.

    Args:
        camera: where it is seen from. behind: the :func:`background` for this camera and size.
        vertices: the corners (m). faces: the numbers of three of them. colors: 0 … 255.
        size: height and width of the picture.
    """
    axes, focal, (h, w) = _lens(camera, size)
    canvas, near = (x.copy() for x in behind)
    corners = (vertices - camera.eye) @ axes.T
    first, second, third = (vertices[faces[:, k]] for k in range(3))
    normals = np.cross(second - first, third - first)
    length = np.linalg.norm(normals, axis=1)
    seen = (corners[faces, 2].min(axis=1, initial=np.inf) > 1e-3) & (length > 0)
    faces, normals = faces[seen], normals[seen] / length[seen, None]
    toward = np.sum(normals * (camera.eye - vertices[faces[:, 0]]), axis=1)
    normals = np.where(toward[:, None] < 0, -normals, normals)
    shade = 0.55 + 0.45 * np.clip(normals @ LIGHT, -0.4, 1)
    tints = np.clip(colors[seen] * shade[:, None], 0, 255)
    depth = corners[faces, 2]
    x = 0.5 * w + focal * corners[faces, 0] / depth - 0.5
    y = 0.5 * h - focal * corners[faces, 1] / depth - 0.5
    _fill(canvas, near, x, y, 1 / depth, tints, (h, w))
    small = canvas.reshape(size[0], FINER, size[1], FINER, 3).mean(axis=(1, 3))
    return np.round(small).astype(np.uint8)


def _lens(camera: Camera, size: tuple[int, int]) -> tuple[np.ndarray, float, tuple[int, int]]:
    """The axes of the camera, its focal length and the size of the picture, in fine pixels."""
    h, w = FINER * size[0], FINER * size[1]
    return camera.axes, 0.5 * h / np.tan(np.deg2rad(0.5 * OPENING)), (h, w)


def background(
    camera: Camera, floor: tuple[float, float] | None, size: tuple[int, int]
) -> Background:
    """Sky, and a floor by its height and the width of its tiles (m); None for no floor."""
    axes, focal, (h, w) = _lens(camera, size)
    eye = camera.eye
    right = (np.arange(w) + 0.5 - 0.5 * w) / focal
    up = (0.5 * h - np.arange(h) - 0.5) / focal
    canvas = np.tile(np.array(SKY, float), (h * w, 1))
    near = np.zeros(h * w)
    if floor is None or eye[2] <= floor[0]:
        return Background(canvas, near)
    height, tile = floor
    ray = (right[None, :, None] * axes[0] + up[:, None, None] * axes[1] + axes[2]).reshape(-1, 3)
    falls = np.flatnonzero(ray[:, 2] < -1e-9)
    ahead = (height - eye[2]) / ray[falls, 2]  # the depth, as the ray is one ahead
    at = (eye[:2] + ahead[:, None] * ray[falls, :2]) / tile
    odd = (np.floor(at[:, 0]) + np.floor(at[:, 1])) % 2 > 0
    tone = np.where(odd[:, None], np.array(LINE, float), np.array(FLOOR, float))
    away = np.hypot(*(at * tile - eye[:2]).T)
    far = np.clip(away / (60 * tile), 0, 1)[:, None]  # the floor ends in the sky
    canvas[falls] = tone * (1 - far) + np.array(SKY, float) * far
    near[falls] = 1 / ahead
    return Background(canvas, near)


def _fill(canvas, near, x, y, inverse_depth, tints, size) -> None:
    """Draw triangles by their corners in the picture (m, 3), into canvas and depth buffer."""
    h, w = size
    area = (x[:, 1] - x[:, 0]) * (y[:, 2] - y[:, 0]) - (x[:, 2] - x[:, 0]) * (y[:, 1] - y[:, 0])
    left, right = _span(x, w)
    top, bottom = _span(y, h)
    counts = np.maximum(right - left + 1, 0) * np.maximum(bottom - top + 1, 0)
    some = np.flatnonzero((counts > 0) & (np.abs(area) > 1e-12))
    chunk = np.cumsum(counts[some]) // _MOST
    for group in np.split(some, np.flatnonzero(np.diff(chunk)) + 1):
        own = np.repeat(group, counts[group])
        if not len(own):
            continue
        k = np.arange(len(own)) - np.repeat(np.cumsum(counts[group]) - counts[group], counts[group])
        wide = (right - left + 1)[own]
        px, py = left[own] + k % wide, top[own] + k // wide
        weights = []
        for i, j in ((1, 2), (2, 0), (0, 1)):
            across = (x[own, j] - x[own, i]) * (py - y[own, i])
            weights.append((across - (y[own, j] - y[own, i]) * (px - x[own, i])) / area[own])
        inside = np.minimum(np.minimum(*weights[:2]), weights[2]) >= 0
        own, at = own[inside], (py * w + px)[inside]
        depth = sum(weights[k][inside] * inverse_depth[own, k] for k in range(3))
        np.maximum.at(near, at, depth)
        front = near[at] == depth
        canvas[at[front]] = tints[own[front]]


def _span(x: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The first and the last pixel between the corners of each triangle, within the picture."""
    first = np.ceil(np.clip(x.min(axis=1), 0, size)).astype(int)
    return first, np.floor(np.clip(x.max(axis=1), -1, size - 1)).astype(int)
