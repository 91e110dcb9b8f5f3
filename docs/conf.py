"""The site: ``sphinx-build -W docs docs/_build``. It needs no network."""

import os
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]
os.environ.setdefault("JAX_PLATFORMS", "cpu")

from rbd_jax import __version__  # noqa: E402

# Notebooks and tables lie elsewhere in the repository; Sphinx reads what is below this folder.
for folder, pattern in (("notebooks", "*.ipynb"), ("benchmarks/results", "*.[mp]*")):
    there = HERE / Path(folder).name
    there.mkdir(exist_ok=True)
    new = {path.name: path for path in (HERE.parent / folder).glob(pattern)}
    for path in there.iterdir():
        if path.name not in new:
            path.unlink()
    for name, path in new.items():
        if not (there / name).exists() or (there / name).read_bytes() != path.read_bytes():
            shutil.copyfile(path, there / name)

project, author, copyright = "rbd_jax", "The rbd_jax authors", "The rbd_jax authors"
release = version = __version__
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "myst_nb",
    "api",
    "mathml",
    "papers",
    "recording",
]
exclude_patterns = ["_build", "README.md", "papers/open.md", "**/.ipynb_checkpoints"]
source_suffix = {".rst": "restructuredtext", ".md": "myst-nb", ".ipynb": "myst-nb"}

nb_execution_mode = "off"  # the notebooks are shown with the outputs that they are stored with
nb_merge_streams = True
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
suppress_warnings = [
    "ref.python",  # a name such as Pose in a signature may mean several classes
    "myst.header",  # tables of benchmarks start below the level of a page
]
python_maximum_signature_line_length = 88
add_module_names = False

html_theme = "furo"
html_math_renderer = "mathml"
html_title = "rbd_jax"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_js_files = ["recording.js"]
html_copy_source = False
html_show_sphinx = False
