"""This library with its passes as kernels of one robot a lane (``benchmarks._lanes``)."""

from .. import _lanes
from . import ours

PACKAGE = ours.PACKAGE
context = _lanes.used
Robot = ours.Robot
