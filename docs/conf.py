"""Build of the documentation: `make docs` writes the site to `build/site`; warnings are errors.

Pages link to files beside `docs/` (results, examples, README) as they do in the repository. While the site is built,
these links are turned into links to the pages that show the same files here.
"""

import os
import re
import warnings
from pathlib import Path
from typing import Any

import latex2mathml.converter
from docutils import nodes

ROOT = Path(__file__).parents[1]
os.environ.setdefault("OMP_NUM_THREADS", "1")
warnings.filterwarnings("ignore", message="`torch.jit", category=DeprecationWarning)  # of PyTorch Geometric

project = "wtawp"
author = "the authors of wtawp"
release = re.search(r'__version__ = "(.+)"', (ROOT / "src/wtawp/__init__.py").read_text(encoding="utf-8"))[1]
version = release
html_title = f"wtawp {release}"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_gallery.gen_gallery"]
exclude_patterns = ["tutorials/README.rst", "gallery/sg_execution_times.rst", "sg_execution_times.rst"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
default_role = "code"  # docstrings write `name`, as Markdown does
html_theme = "furo"
html_static_path: list[str] = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
html_math_renderer = "mathml"  # shown by the browser itself, without a script from the network

myst_enable_extensions = ["dollarmath", "deflist", "colon_fence"]
myst_heading_anchors = 3
suppress_warnings = ["myst.header"]  # included files begin with their own first heading

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False

sphinx_gallery_conf = {
    "examples_dirs": "tutorials",
    "gallery_dirs": "gallery",
    "filename_pattern": r"tutorial_",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_memory": False,
    "min_reported_time": 1e9,
    "abort_on_example_error": True,
    "show_signature": False,
    "remove_config_comments": True,
    "plot_gallery": "True" if os.environ.get("WTAWP_RUN_TUTORIALS", "1") == "1" else "False",
}

OUTSIDE = {  # files beside docs/ -> the page that shows them
    r"(?:\.\./)+results/README\.md": "results.md",
    r"(?:\.\./)+README\.md": "index.md",
    r"(?:\.\./)+CHANGELOG\.md": "changelog.md",
    r"(?:\.\./)+SECURITY\.md": "security.md",
    r"(?:\.\./)+CONTRIBUTING\.md": "contributing.md",
    r"(?:\.\./)+examples/(\w+)\.py": r"examples.md#\1py",
}
FROM_ROOT = {  # the same in files of the root, which pages include
    r"docs/decisions": "decisions/index.md",
    r"docs/([\w/-]+\.md)": r"\1",
    r"results/README\.md": "results.md",
    r"(README|CHANGELOG|SECURITY|CONTRIBUTING)\.md": lambda match: (
        {"README": "index"}.get(match[1], match[1].lower()) + ".md"
    ),
}


def list_commands(_app: Any, name: str, source: list[str]) -> None:
    """Write the options of all commands into the page that lists them."""
    if name == "commands":
        import typer.main

        from wtawp.cli import app

        source[0] = source[0].replace("%COMMANDS%", "\n".join(_described(typer.main.get_command(app), "wtawp", 2)))


def _described(command: Any, name: str, level: int) -> list[str]:
    """A command as Markdown: its description, its options, and its subcommands."""
    lines = [] if level == 2 else [f"{'#' * (level - 1)} {name}", "", _cell(command.help or ""), ""]
    if hasattr(command, "commands"):
        for sub in command.commands.values():
            if not sub.hidden:
                lines += _described(sub, f"{name} {sub.name}", level + 1)
        return lines
    rows = [
        (
            ", ".join(f"`{option}`" for option in (*p.opts, *p.secondary_opts))
            if p.param_type_name == "option"
            else f"`{p.name.upper()}`",
            p,
        )
        for p in command.params
        if not getattr(p, "hidden", False) and p.name != "help"
    ]
    lines += ["| option | what it does |", "|---|---|"] if rows else []
    return [*lines, *(f"| {shown} | {_cell(getattr(p, 'help', None) or '')} |" for shown, p in rows), ""]


def _cell(text: str) -> str:
    """Text of a help message as one line of Markdown."""
    return re.sub(r"\s+", " ", text).replace("|", r"\|").replace("<", "&lt;").strip()


def link_to_pages(_app: Any, name: str, source: list[str]) -> None:
    """Turn links to files beside the documentation into links to its pages."""
    up = "../" * name.count("/")
    for pattern, page in OUTSIDE.items():
        source[0] = re.sub(rf"\]\({pattern}(#[\w-]+)?\)", _link(up, page), source[0])


def link_included_files(_app: Any, _path: Path, parent: str, source: list[str]) -> None:
    """The same for files that a page includes, whose links start from the root of the repository or from results/."""
    for pattern, page in {**OUTSIDE, **FROM_ROOT}.items():
        source[0] = re.sub(rf"\]\((?:\.\./)?{pattern}(#[\w-]+)?\)", _link("", page), source[0])
    if parent == "results":
        source[0] = source[0].replace("](../docs/", "](").replace("](datasets.md)", "](datasets.md)")


def _link(up: str, page: Any) -> Any:
    """A replacement that keeps an anchor, unless the page names one."""

    def replacement(match: re.Match[str]) -> str:
        target = page(match) if callable(page) else match.expand(page)
        anchor = match.groups()[-1] or ""
        return f"]({up}{target}{'' if '#' in target else anchor})"

    return replacement


def inline_mathml(translator: Any, node: Any) -> None:
    """Write an equation inside a line."""
    translator.body.append(latex2mathml.converter.convert(node.astext()))
    raise nodes.SkipNode


def display_mathml(translator: Any, node: Any) -> None:
    """Write an equation of its own."""
    equation = latex2mathml.converter.convert(node.astext(), display="block")
    translator.body.append(f'<div class="math-wrapper">{equation}</div>')
    raise nodes.SkipNode


def plain_text(_app: Any, _what: str, _name: str, _obj: Any, _options: Any, lines: list[str]) -> None:
    """Keep characters of docstrings that reStructuredText would take for markup, such as |delta|."""
    for i, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            lines[i] = re.sub(r"(?<![`\\])\|(?=\w)|(?<=\w)\|(?![`\w])", r"\|", line)


def setup(app: Any) -> None:
    """Connect the functions above."""
    app.add_html_math_renderer("mathml", (inline_mathml, None), (display_mathml, None))
    app.connect("source-read", list_commands)
    app.connect("source-read", link_to_pages)
    app.connect("include-read", link_included_files)
    app.connect("autodoc-process-docstring", plain_text, priority=900)
