"""The site: Sphinx with the furo theme reads the Markdown of the repository as it is.

The source folder is the root of the repository, so that a link such as
`../benchmarks/results/watch.md` leads to the same page on the site and in a checkout. Run
`make docs`; the pages open from disk, without a network.
"""

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE / "reference"), str(ROOT / "src")]

import api_pages  # noqa: E402
import reference_tables  # noqa: E402

import toosure  # noqa: E402

api_pages.write_pages(HERE / "reference" / "api")
reference_tables.write_tables(HERE / "reference" / "generated")

project = "toosure"
author = copyright = "The toosure authors"
version = release = toosure.__version__
root_doc = "docs/index"

extensions = ["myst_nb"]
include_patterns = [
    *("docs/*.md", "docs/[!r]*/*.md", "docs/reference/*.md", "docs/reference/api/*.md"),
    *("docs/notebooks/*.py", "benchmarks/results/*.md", "recipes/**/*.md"),
    *("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"),
]
exclude_patterns = [
    *(".*", "build", "dist", "runs", "src", "tests", "shared", "examples", "**/__pycache__"),
    *("docs/reference/generated", "docs/images", "recipes/**/figures"),
]

# Markdown: headings are targets of links, and a link to a missing page is an error (make docs: -W).
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["myst.header"]  # pages written for a checkout may skip a level
highlight_language = "none"  # a block without a language is what a command prints
smartquotes_action = "qe"  # no dashes: `--data` in a sentence stays as it is typed

# Notebooks are Python files (jupytext's py:percent). `make docs-notebooks` executes them.
nb_custom_formats = {".py": ["jupytext.reads", {"fmt": "py:percent"}]}
nb_execution_mode = "force" if "notebooks" in globals().get("tags", ()) else "off"
nb_execution_timeout = 60
nb_execution_raise_on_error = True
nb_execution_in_temp = True

html_theme = "furo"
html_title = f"toosure {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#3b5b92", "color-brand-content": "#3b5b92"},
    "dark_css_variables": {"color-brand-primary": "#9db7e8", "color-brand-content": "#9db7e8"},
}
python_maximum_signature_line_length = 88
add_module_names = False
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"


def setup(app: object) -> None:
    """Put a page at the top of the site that leads to its first page, and mend links."""
    app.connect("build-finished", write_entrance)  # type: ignore[attr-defined]
    app.connect("source-read", link_to_examples)  # type: ignore[attr-defined]
    app.connect("source-read", list_new_pages)  # type: ignore[attr-defined]
    app.connect("html-page-context", keep_words_whole)  # type: ignore[attr-defined]


def link_to_examples(app: object, name: str, source: list[str]) -> None:
    """Let a link to a script of examples/ lead to the page on which all of them stand."""
    link = r"\]\(((?:\.\./)*)\.\./examples/(\w+)\.py\)"
    source[0] = re.sub(link, r"](\1examples.md#\2)", source[0])


def list_new_pages(app: object, name: str, source: list[str]) -> None:
    """Put pages of docs/ that no list on the first page names at its end, under "More"."""
    if name == root_doc:
        named = set(re.findall(r"(?m)^(?:.*<)?(\w+)>?$", source[0]))
        new = sorted(page.stem for page in HERE.glob("*.md") if page.stem not in {*named, "index"})
        if new:
            source[0] += "\n".join(["\n```{toctree}", ":hidden:", ":caption: More", *new, "```\n"])


def keep_words_whole(app: object, page: str, template: str, context: dict, tree: object) -> None:
    """Say where a line may break: not in an option, a percentage or 1 ± 2, but after a comma."""
    pieces = re.split(r"(?s)(<pre>.*?</pre>|<code .*?</code>)", context.get("body", ""))
    for place, piece in enumerate(pieces):
        if piece.startswith("<pre>"):
            option = r"(?<![\w-])(--[a-z][\w-]*)"
            pieces[place] = re.sub(option, r'<span class="option">\1</span>', piece)
        elif piece.startswith("<code "):
            pieces[place] = re.sub(r'<span class="pre">([^<]*)</span>', breakable, piece)
        else:
            text = re.sub(r"(?<=\d) %", "&nbsp;%", piece)
            pieces[place] = re.sub(r"(?<=\d) ± (?=[\d.])", "&nbsp;±&nbsp;", text)
    if pieces != [""]:
        context["body"] = "".join(pieces)


def breakable(match: re.Match[str]) -> str:
    """Return a word of code: an option is whole, others may break at signs in a narrow table."""
    *_, option, word = re.split(r"^(--?[a-z][\w-]*|)", match[1])
    if len(word) > 12:
        sign = r"(?<=\w[/_:=(])(?=[\w-])|(?<=\w\.)(?=[^\W\d])"
        word = re.sub(sign, '<wbr class="narrow">', word)
    word = re.sub(r",(?=.)", ",<wbr>", word)
    whole = f'<span class="option">{option}</span>' if option else ""
    return f'<span class="pre">{whole}{word}</span>'


def write_entrance(app: object, error: Exception | None) -> None:
    if error is None:
        target = f"{root_doc}.html"
        text = f'<!doctype html><meta charset="utf-8"><title>{project}</title>'
        text += f'<meta http-equiv="refresh" content="0; url={target}">'
        text += f'<a href="{target}">{project}</a>\n'
        Path(app.outdir, "index.html").write_text(text, encoding="utf-8")  # type: ignore[attr-defined]
