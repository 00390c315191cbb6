"""Sphinx: ``sphinx-build -W docs docs/_build``, with fusedops installed."""

import os
import sys
from pathlib import Path

import fusedops

sys.path.insert(0, str(Path(__file__).parent))  # of signatures

project = "fusedops"
author = copyright = "the fusedops contributors"
version = release = fusedops.__version__

extensions = [
    "myst_nb",
    "numpydoc",
    "signatures",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx_design",
]
exclude_patterns = ["_build", "jupyter_execute"]  # the latter is what a build leaves of the notebook
templates_path = ["_templates"]
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["page.css"]
html_favicon = "_static/favicon.svg"
html_title = f"fusedops {version}"
if os.environ.get("GITHUB_REPOSITORY"):  # where a build on GitHub has its sources: pages link to them and to issues
    repository = f"{os.environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{os.environ['GITHUB_REPOSITORY']}"
    report = {"name": "Report a problem", "url": f"{repository}/issues", "html": "Report a problem", "class": ""}
    html_theme_options = {
        "source_repository": repository,
        "source_branch": "main",
        "source_directory": "docs/",
        "footer_icons": [report],
    }

autodoc_typehints = "signature"
autosummary_generate = True  # a page for each function and class, in docs/api
autosummary_generate_overwrite = True
add_module_names = False
python_maximum_signature_line_length = 100
myst_enable_extensions = ["colon_fence", "substitution"]
myst_substitutions = {"version": version}
myst_heading_anchors = 3
nb_execution_mode = "off"  # it is committed with its results
nb_merge_streams = True  # a loop that prints makes one box, not one for each line
numpydoc_show_class_members = False
# What numpydoc itself can see to; tests/package/test_examples.py looks at the rest.
numpydoc_validation_checks = {
    "all",  # but these
    "ES01",
    "SA01",
    "SA04",
    "YD01",  # sections that not every name has
    "GL01",
    "GL02",
    "GL03",  # where the text of a docstring begins and ends
    "PR03",
    "PR04",  # arguments that another docstring describes stand together, in the order of what they are
    # types with shapes, and descriptions that would repeat the name
    "PR06",
    "PR07",
    "PR08",
    "PR09",
    "RT02",
    "RT03",
    "RT04",
    "RT05",
    "SS03",
    "SS05",
    "SS06",  # a summary may go on with a formula
}
numpydoc_validation_exclude = {
    r"fusedops\.Model$",  # made by the functions that load a network
    # described where they are made, with an example in the class
    r"fusedops\.Stream\.",
    r"fusedops\.ConvolutionStream",
}


def only_with_source(app):
    """Keeps the index of sources to modules that have one: a compiled module has no page to link to."""
    modules = getattr(app.env, "_viewcode_modules", {})
    for name in [name for name, entry in modules.items() if not entry]:
        del modules[name]
    return ()


def setup(app):
    app.connect("html-collect-pages", only_with_source, priority=400)  # before viewcode's own
