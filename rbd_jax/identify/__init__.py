"""Learning the parameters of a robot from recorded motions."""

from .data import Dataset as Dataset
from .data import filter_and_differentiate as filter_and_differentiate
from .data import load_csv as load_csv
from .data import load_npz as load_npz
from .data import save_csv as save_csv
from .data import save_npz as save_npz
