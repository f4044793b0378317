"""`extends`: where the extended file lies, and that it may be read from there."""

from __future__ import annotations

from os.path import normpath
from pathlib import Path

from precc.diagnostics import Diagnostic, error
from precc.records import replace
from precc.source import SourceFile
from precc.syntax import read_source
from precc.syntax.ast import Extends

SUFFIX = ".prec"

MAX_CHAIN = 32
"""Files that extend each other: nobody can read what more of them decide."""


def shipped_policies() -> Path:
    """The folder of the ready policies: in the wheel beside this package's modules, in a checkout at its root."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "policies"
    return inside if inside.is_dir() else package.parent / "policies"


def ready_policies() -> list[str]:
    """The names of the ready policies."""
    return sorted(path.stem for path in shipped_policies().glob(f"*{SUFFIX}"))


def project_folder(folder: Path) -> Path:
    """The nearest folder above with a `.git` or `pyproject.toml`, else the folder itself."""
    for candidate in (folder, *folder.parents):
        if (candidate / ".git").exists() or (candidate / "pyproject.toml").exists():
            return candidate
    return folder


def read_extended(extends: Extends, chain: tuple[str, ...]) -> tuple[SourceFile, str] | Diagnostic:
    """The extended file and its path, or why there is none. `chain` are the paths of the files that extend it."""
    files = tuple(Path(path).resolve() for path in chain)
    if len(files) == MAX_CHAIN:
        return error(
            "P012",
            f"policies extend each other more than {MAX_CHAIN} deep",
            extends.span,
            help="let fewer files hold the rules; one may extend a base that many share",
        )
    path = _locate(extends, files)
    if isinstance(path, Diagnostic):
        return path
    if path in files:
        names = " extends ".join(f'"{link.stem}"' for link in (*files[files.index(path) :], path))
        return error("P015", f"`extends` goes round in a circle: {names}", extends.span)
    read = read_source(path)
    if isinstance(read, Diagnostic):
        return replace(read, span=extends.span, labels=())
    return _named(extends, read, path), str(path)


def _named(extends: Extends, read: SourceFile, path: Path) -> SourceFile:
    """The extended file under the name that findings show: `policies/…` for a ready one."""
    source = extends.span.source
    if not _is_path(extends.target):
        return SourceFile(f"policies/{path.name}", read.text)
    recorded = _beside(source.recorded or source.path, extends.target)
    return SourceFile(_beside(source.path, extends.target), read.text, recorded)


def _beside(path: str, target: str) -> str:
    return Path(normpath(Path(path).parent / target)).as_posix()


def _locate(extends: Extends, files: tuple[Path, ...]) -> Path | Diagnostic:
    if _is_path(extends.target):
        return _locate_file(extends, files[-1].parent)
    ready = shipped_policies() / f"{extends.target}{SUFFIX}"
    return ready.resolve() if ready.is_file() else _no_such_policy(extends)


def _locate_file(extends: Extends, folder: Path) -> Path | Diagnostic:
    path = (folder / extends.target).resolve()
    root = project_folder(folder)
    if not path.is_relative_to(root):
        return error(
            "P016",
            f'`extends "{extends.target}"` leads out of the project',
            extends.span,
            help=f"a policy extends files below {_shown(root)} only: "
            "copy the policy there, or extend a ready one by its name",
        )
    if not path.is_file():
        return error("P014", f'there is no file "{extends.target}" beside this one', extends.span)
    return path


def _is_path(target: str) -> bool:
    return "/" in target or "\\" in target or target.endswith(SUFFIX)


def _shown(root: Path) -> str:
    return f"the folder `{root.name}`" if root.name else "that folder"


def _no_such_policy(extends: Extends) -> Diagnostic:
    from difflib import get_close_matches

    names = ready_policies()
    near = get_close_matches(extends.target, names, n=1)
    hint = f"did you mean `{near[0]}`? " if near else ""
    return error(
        "P014",
        f'no ready policy is called "{extends.target}"',
        extends.span,
        help=f"{hint}ready policies: {', '.join(names)}; "
        "a file of your own is named by its relative path, ending in `.prec`",
    )
