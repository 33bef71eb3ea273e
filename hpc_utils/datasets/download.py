"""One archive over HTTP: resumed where it stopped, bounded in retries, and checked before it counts."""

from __future__ import annotations

import hashlib
import sys
import time
from pathlib import Path

from hpc_utils.datasets.catalog import Archive, DataError, fault

_BLOCK = 2**18


def download(
    archive: Archive,
    folder: Path,
    progress: bool = True,
    attempts: int = 4,
    timeout_s: float = 20.0,
    pause_s: float = 1.0,
) -> Path:
    """Bring `archive` into `folder` and return its path, its md5 verified.

    What has arrived stays in `<file>.part`; the next attempt, or the next call, asks only for the rest. Each URL
    gets `attempts` tries, `pause_s` seconds apart and doubling; `timeout_s` bounds each wait for the server.
    """
    import http.client
    import urllib.error

    target = folder / archive.file
    part = folder / f"{archive.file}.part"
    if target.is_file() and _md5(target) == archive.md5:
        return target
    faults = []
    for url in archive.urls:
        for attempt in range(attempts):
            if attempt:
                if progress:
                    print(f"{archive.file}: {faults[-1]}; trying again", file=sys.stderr, flush=True)
                time.sleep(min(pause_s * 2 ** (attempt - 1), 30.0))
            try:
                resumed = _transfer(url, part, archive.size, timeout_s, progress)
            except urllib.error.HTTPError as error:
                faults.append(f"HTTP {error.code} at {url}")
                error.close()
                if error.code == 416:
                    part.unlink(missing_ok=True)
                elif error.code < 500 and error.code not in (408, 429):
                    break
                continue
            except (OSError, http.client.HTTPException, ValueError) as error:
                faults.append(f"{getattr(error, 'reason', None) or error or type(error).__name__} at {url}")
                continue
            found = _md5(part)
            if found == archive.md5:
                part.replace(target)
                return target
            part.unlink()
            faults.append(f"md5 {found} at {url}")
            if not resumed:
                break
    raise fault(
        archive.file,
        f"a download of {archive.size:,} bytes with md5 {archive.md5}",
        "; ".join(dict.fromkeys(faults)),
        f"try again (what arrived is kept), or put {archive.file} into a folder and set HPC_DATA_MIRROR to it",
    )


def _transfer(url: str, part: Path, size: int, timeout_s: float, progress: bool) -> bool:
    """Append to `part` until it holds `size` bytes; True if it began with bytes of an earlier attempt."""
    import urllib.request

    from tqdm import tqdm

    have = part.stat().st_size if part.exists() else 0
    if have == size:
        return True
    if have > size:
        part.unlink()
        have = 0
    request = urllib.request.Request(url, headers={"User-Agent": "hpc_utils"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    with urllib.request.urlopen(request, timeout=timeout_s) as reply:
        resumed = reply.status == 206
        if resumed and not reply.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            part.unlink(missing_ok=True)
            raise OSError("the server sent another range than it was asked for")
        if not resumed:
            have = 0
        with (
            part.open("ab" if resumed else "wb") as file,
            tqdm(total=size, initial=have, unit="B", unit_scale=True, desc=part.stem, disable=not progress) as bar,
        ):
            while have <= size and (block := reply.read(_BLOCK)):
                try:
                    file.write(block)
                except OSError as error:
                    raise DataError(f"{part}: expected room for {size:,} bytes, found {error.strerror}") from error
                have += len(block)
                bar.update(len(block))
    if have < size:
        raise OSError(f"connection closed at {have:,} of {size:,} bytes")
    return resumed


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
