"""Robots from files, from code and back: URDF, samples, and the layouts of other libraries."""

from . import convert as convert, samples as samples
from ._build import build_model as build_model
from ._export import export_urdf as export_urdf
from ._layout import Layout as Layout
from ._load import load_urdf as load_urdf
from ._robots import (
    example_robot as example_robot,
    example_robots as example_robots,
    load_example_robot as load_example_robot,
)
from ._urdf import read_urdf as read_urdf
