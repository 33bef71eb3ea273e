"""Sharing: one commit, its result sets and its texts as an RO-Crate that others can take apart.

`tree` is what git has, `contents` what goes in, `checks` what must be true of each file, `ready` the checklist, `crate`
and `checksums` what is said about the files, `archive` how they are written.
"""

from __future__ import annotations

from pathlib import Path

from .tree import ReleaseRefused

__all__ = ["ReleaseRefused", "release"]


def release(root: Path, output: Path) -> Path:
    """Pack the commit that `root` stands at into `output/<name>-<version>/` and a zip, whose path is returned.

    Raises:
        ReleaseRefused: something that a release of this version needs does not hold; a line each.
    """
    from . import archive, checks, citation, contents, ready, tree
    from .allowed import allowed

    stands = tree.head(root)
    version = citation.project(stands.files)["version"]
    if faults := ready.refused(ready.items(root), version):
        raise ReleaseRefused("\n".join(faults))
    packed = contents.gather(root, stands)
    built = {path: content for path, content in packed.files.items() if stands.files.get(path) != content}
    if faults := checks.faults(built, allowed()):
        raise ReleaseRefused("\n".join(faults))
    return archive.write(output, packed.name, packed.files, packed.executable, packed.when)
