"""Sphinx: ``sphinx-build -W docs docs/_build``, with fusedops installed."""
import fusedops

project = "fusedops"
author = copyright = "the fusedops contributors"
version = release = fusedops.__version__

extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["page.css"]
html_title = f"fusedops {version}"

autodoc_typehints = "none"
myst_heading_anchors = 3
numpydoc_show_class_members = False
# What numpydoc itself can see to; tests/test_examples.py looks at the rest.
numpydoc_validation_checks = {
    "all",
    "ES01",  # an extended summary, where one line says it all
    "SA01",
    "GL01", "GL02",  # where the text of a docstring begins and ends
    "GL03",
    "PR03", "PR04",  # arguments that another docstring describes stand together, in the order of what they are
    "PR06", "PR07", "PR08", "PR09", "RT02", "RT03", "RT04", "RT05",  # types with shapes, and descriptions that would repeat the name
    "SS03", "SS05", "SS06",  # a summary may go on with a formula
    "SA04", "YD01",
}
numpydoc_validation_exclude = {r"fusedops\.Model$"}  # made by the functions that load a network
