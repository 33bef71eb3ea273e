"""Keys, tokens and passwords in texts. Few patterns, each of a kind that a study's files could hold.

A finding says what and where, never the secret itself.
"""

from __future__ import annotations

import fnmatch
import math
import re
from collections import Counter
from collections.abc import Iterator

# Tokens that say by their form what they are (GitHub's, GitLab's and others' own documentation).
FORMS = {
    "a private key": r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----",
    "a GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,})",
    "a GitLab token": r"\bgl(?:pat|dt|rt|oas|ptt|ft|imt|agent|cbt|soat)-[A-Za-z0-9_.-]{20,}",
    "a Hugging Face token": r"\b(?:hf|api_org)_[A-Za-z0-9]{30,}",
    "an AWS access key": r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    "a Google API key": r"\bAIza[A-Za-z0-9_-]{35}",
    "a Slack token": r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",
    "a PyPI token": r"\bpypi-[A-Za-z0-9_-]{50,}",
    "an API key (sk-...)": r"\bsk-[A-Za-z0-9_-]{32,}",
    "a signed web token (Slurm's SLURM_JWT is one)": r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    "a password in an address": r"://[^\s/:@\"'<>{}$]+:[^\s/:@\"'<>{}$*]{3,}@[\w.-]+",
    "a password of .netrc": r"\bmachine\s+\S+\s+login\s+\S+\s+password\s+\S+",
    "an authorisation header": r"(?i:authorization)[\"']?\s*[:=]\s*[\"']?(?i:bearer|basic|token)\s+[A-Za-z0-9+/_.=-]{12,}",
}
FORM = {kind: re.compile(form) for kind, form in FORMS.items()}
# What a text must hold for the form to be looked for at all: most hold none of it, and expressions are slow.
MARKS = {
    "a private key": "PRIVATE KEY", "a GitHub token": "ghp_|gho_|ghu_|ghs_|ghr_|github_pat_",
    "a GitLab token": "gl", "an AWS access key": "AKIA|ASIA",
    "a Hugging Face token": "hf_|api_org_", "a Google API key": "AIza", "a Slack token": "xox", "a PyPI token": "pypi-",
    "an API key (sk-...)": "sk-", "a signed web token (Slurm's SLURM_JWT is one)": ".eyJ",
    "a password in an address": "://", "a password of .netrc": "machine", "an authorisation header": "uthorization",
}  # fmt: skip

# NAME=value, "name": "value" and the like, by what the name promises.
PROMISE = re.compile(r"TOKEN|SECRET|PASSW|PASSPHRASE|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|CREDENTIAL|STORAGEPASS")
BEFORE = re.compile(r"[A-Za-z0-9_.-]*\Z")
GIVEN = re.compile(
    r"(?P<rest>[A-Za-z0-9_.-]*)(?:\\*[\"'])?[ \t]*(?::[ \t]|=|:(?=[\"'\\]))[ \t]*(?P<quote>(?:\\*[\"'])?)"
    r"(?P<value>[A-Za-z0-9+/_=~!@#%^&*.-]{6,})(?P=quote)(?=[\s,;}\])\"'\\|<]|$)"
)
ENVIRONMENT = re.compile(r"[A-Z][A-Z0-9_]*")
NOTHING = re.compile(
    r"(?i)none|null|true|false|x+|\*+|\.+|-+|redacted|hidden|removed|example.*|your.*|changeme|secrets?|password"
)
BITS = 3.0  # a character; words have less, random letters and digits more
WIDE = 40  # characters of a name that count
UPPER = {number: number - 32 for number in range(ord("a"), ord("z") + 1)}  # keeps offsets, which str.upper does not
LONG = 16  # characters from which a random value counts, whatever its name's spelling

# Files whose name says that they hold secrets, or a profiler's whole environment.
FILES = (
    ".netrc", "_netrc", ".pgpass", ".pypirc", ".npmrc", ".git-credentials", ".env", "*.pem", "*.key", "*.p12", "*.pfx",
    "id_rsa*", "id_ed25519*", "id_ecdsa*", "*.kdbx", "credentials.json", "*.nsys-rep", "*.ncu-rep", "*.qdrep",
)  # fmt: skip


def by_name(name: str) -> bool:
    """Whether a file of this name has no place in a release."""
    last = name.rsplit("/", 1)[-1]
    return any(fnmatch.fnmatchcase(last, pattern) for pattern in FILES)


def find(text: str) -> Iterator[tuple[int, str]]:
    """(offset, what it is) of whatever in `text` looks like a secret."""
    for kind, form in FORM.items():
        if any(mark in text for mark in MARKS[kind].split("|")):
            yield from ((found.start(), kind) for found in form.finditer(text))
    upper = text.upper()
    for promise in PROMISE.finditer(upper if len(upper) == len(text) else text.translate(UPPER)):
        if found := GIVEN.match(text, promise.end()):
            begin = text[max(0, promise.start() - WIDE) : promise.start()]
            name = BEFORE.search(begin)[0] + text[promise.start() : promise.end()] + found["rest"]
            if _is_secret(name, found["value"], bool(found["quote"])):
                yield promise.start(), f"a value of {name[-WIDE:]}"


def _is_secret(name: str, value: str, quoted: bool) -> bool:
    if NOTHING.fullmatch(value) or value.isdigit():
        return False
    if ENVIRONMENT.fullmatch(name) and "_" in name:
        return quoted or any(character.isdigit() for character in value)  # an environment's dump; no constant's alias
    mixed = any(character.isdigit() for character in value) and any(character.isalpha() for character in value)
    return len(value) >= LONG and mixed and _bits(value) >= BITS


def _bits(value: str) -> float:
    """Shannon's entropy of its characters."""
    return -sum(n / len(value) * math.log2(n / len(value)) for n in Counter(value).values())
