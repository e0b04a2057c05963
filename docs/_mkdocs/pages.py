"""Pages of the site that lie outside of docs/, and links that hold both in the repository and on the site.

A link in a document is relative to the document's place in the repository. Here it becomes one between pages; where it names a file that
has no page (a program, a licence), its words stay and the link goes.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from toml_keys import with_keys  # mkdocs looks for what a hook imports beside it

ROOT = Path(__file__).resolve().parents[2]
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
CODE = re.compile(r"(^```.*?^```$|`[^`\n]*`)", re.DOTALL | re.MULTILINE)


def _outside() -> dict[str, str]:
    """Files beside docs/ by their place in the repository, each with its place on the site."""
    shown = [path for pattern in ("*.md", "*/*.md", "*/*.png") for path in (ROOT / "experiments").glob(pattern)]
    return PAGES | {(name := path.relative_to(ROOT).as_posix()): name for path in sorted(shown)}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files beside docs/."""
    for name, place in _outside().items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links between files of the repository into links between pages; what stands in code is left alone."""
    markdown, place = with_keys(markdown), page.file.src_uri
    here = posixpath.dirname(_in_repository(place))
    parts = CODE.split(markdown)
    return "".join(part if i % 2 else LINK.sub(lambda link: _link(link, here, place), part) for i, part in enumerate(parts))


def _in_repository(place: str) -> str:
    """Where a page of the site comes from."""
    return {place: name for name, place in _outside().items()}.get(place, f"docs/{place}")


def _link(link: re.Match[str], here: str, place: str) -> str:
    mark, words, target, anchor = link[1], link[2], link[3], link[4] or ""
    if not target or ":" in target:
        return link[0]
    name = posixpath.normpath(posixpath.join(here, target))
    if (ROOT / name).is_dir():
        name = f"{name}/README.md"
    outside = _outside()
    if name in outside or (name.startswith("docs/") and (ROOT / name).exists()):
        found = outside.get(name, name.removeprefix("docs/"))
        return f"{mark}[{words}]({posixpath.relpath(found, posixpath.dirname(place) or '.')}{anchor})"
    return words if (ROOT / name).exists() else link[0]  # a link to nothing stays, for mkdocs to complain about
