"""Configuration of the site. Its source is written by book.stage into the folder that Sphinx reads."""

import sys
from importlib.metadata import version as version_of
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # for `book` and `helpers`, where Hookbook is not installed from this folder

project = "Hookbook"
author = "The Hookbook developers"
copyright = "The Hookbook developers, Apache-2.0"  # no year: the same input gives the same bytes
version = release = version_of("hookbook")
language = "en"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "book.docstrings",
    "book.mathml",
    "book.extension",
]
exclude_patterns = ["_extra", "jupyter_execute", "**/.ipynb_checkpoints", "runs", ".venv"]
templates_path = ["templates/sphinx"]
html_extra_path: list[str] = []  # book.extension adds the folder that it fills

# notebooks: nothing is executed, and no script comes from elsewhere
nb_execution_mode = "off"
nb_ipywidgets_js: dict = {}
nb_render_markdown_format = "myst"
nb_merge_streams = True
nb_code_prompt_show = nb_code_prompt_hide = "Code"
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 3
myst_links_external_new_tab = False
suppress_warnings = ["ref.python"]  # a class that two modules show has two places
html_math_renderer = "mathml"

# modules, from their docstrings
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_display_short_literal_types = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # attributes as a list: those with a docstring of their own would stand twice
napoleon_attr_annotations = False  # a shape such as "*site unit" would be read as emphasis
add_module_names = False
toc_object_entries_show_parents = "hide"

# pydata-sphinx-theme: maintained by NumPy's and pandas' people, tested for accessibility, all it loads is its own
_WIDE = ("index", "gallery", "scoreboard", "teach/index")  # pages that need the room
html_theme = "pydata_sphinx_theme"
html_title = "Hookbook"
html_static_path = ["static"]
html_css_files = ["book.css"]
html_js_files = [(name, {"defer": "defer"}) for name in ("code.js", "filters.js", "sorting.js", "scrolling.js")]
html_copy_source = html_show_sourcelink = html_show_sphinx = False
html_favicon = "static/hook.svg"
html_theme_options = {
    "logo": {"text": "Hookbook", "alt_text": "Hookbook, first page"},
    "navbar_align": "left",
    "navbar_persistent": ["search-button"],
    "navbar_end": ["theme-switcher"],
    "header_links_before_dropdown": 7,
    "show_nav_level": 2,
    "show_toc_level": 1,
    "secondary_sidebar_items": {"**": ["page-toc"], **{name: [] for name in _WIDE}},
    "article_header_start": [],
    "footer_start": ["copyright"],
    "footer_end": [],
    "back_to_top_button": False,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
_ALONE = ("index", "gallery", "scoreboard", "untrained", "model", "glossary", "search", "genindex")
html_sidebars = {name: [] for name in _ALONE}  # their lists are on the pages
html_context = {"default_mode": "auto"}
html_use_index = False
html_domain_indices = False
copybutton_prompt_text = "$ "
