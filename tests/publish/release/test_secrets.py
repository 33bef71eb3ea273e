"""What looks like a secret is one, and what only speaks of secrets is none."""

from __future__ import annotations

import pytest

from hpc_utils.publish.release import secrets

# Put together here, so that no file of ours holds what is looked for.
LETTERS = "q7Xv2Lm9Rt4Kp8Zs3Wd6Yb1Nc5Hf0Jg"
SECRETS = {
    "-----BEGIN " + "OPENSSH PRIVATE KEY-----": "a private key",
    "ghs_" + LETTERS + LETTERS: "a GitHub token",
    "github_pat_" + LETTERS: "a GitHub token",
    "glpat-" + LETTERS: "a GitLab token",
    "hf_" + LETTERS + "ab": "a Hugging Face token",
    "AKIA" + "Q7XV2LM9RT4KP8ZS": "an AWS access key",
    "AIza" + (LETTERS + LETTERS)[:35]: "a Google API key",
    "sk-proj-" + LETTERS: "an API key (sk-...)",
    "eyJ" + LETTERS + ".eyJ" + LETTERS + "." + LETTERS: "a signed web token (Slurm's SLURM_JWT is one)",
    "https://anna:" + "hunter2" + "@example.org/x": "a password in an address",
    "machine example.org login " + "anna password hunter2": "a password of .netrc",
    "Authorization: Bearer " + LETTERS: "an authorisation header",
    "WANDB_API_KEY=" + LETTERS: "a value of WANDB_API_KEY",
    '"ZENODO_TOKEN": "' + LETTERS + '"': "a value of ZENODO_TOKEN",
    '"DB_PASSWORD": "' + "hunter2" + '",': "a value of DB_PASSWORD",
    "StoragePass=" + LETTERS: "a value of StoragePass",
    "secret_key = '" + LETTERS + "'": "a value of secret_key",
    "\\\"HF_TOKEN\\\": \\\"" + "hf-" + LETTERS + "\\\"": "a value of HF_TOKEN",
}  # fmt: skip
NONE = [
    "token = secrets.token_hex(16)",
    "password: str = Field(min_length=8)",
    "API_TOKEN=$SECRET_FROM_ENVIRONMENT",
    "export HF_TOKEN=<your token>",
    '"HF_TOKEN": null, "SLURM_TOKEN": ""',
    "HF_TOKEN=********",
    "tokens per second: 123456789",
    "the password is kept by nobody",
    "sk-learn, hf_hub, https://example.org:8080/x@y",
    "digest 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "max_tokens = 4096000000000000000",
    "PASSWORD_FILE = DEFAULT_PASSWORD_FILE",
]


@pytest.mark.parametrize("text", SECRETS, ids=SECRETS.values())
def test_secrets_are_found_and_named_without_being_told(text: str) -> None:
    found = list(secrets.find(f"before\n{text}\nafter"))
    assert SECRETS[text] in {kind for _, kind in found}
    assert not any(LETTERS[:6] in kind or "hunter" in kind for _, kind in found)


@pytest.mark.parametrize("text", NONE)
def test_what_speaks_of_secrets_is_none(text: str) -> None:
    assert list(secrets.find(text)) == []


def test_every_form_has_its_mark() -> None:
    assert secrets.FORMS.keys() == secrets.MARKS.keys()


def test_offsets_are_those_of_the_text_whatever_its_letters() -> None:
    text = "ﬁ ß ŉ " * 10 + "API_KEY=" + LETTERS
    ((offset, _),) = secrets.find(text)
    assert text[offset:].startswith("API_KEY")
