"""`python -m tests.pins`: write the pins anew; what cannot be read here (profiles without their folder or nsys) stays as it is."""

from __future__ import annotations

from . import FOLDER, numbers, profiles, read, write

for name in numbers.SETS:
    write(name, numbers.of_set(name))
write("plan", numbers.plan())
kept = read("profiles") if (FOLDER / "profiles.json").exists() else {}
write(
    "profiles",
    kept
    | {name: profiles.profile(path) for name, path in profiles.here().items()}
    | {"thresholds": profiles.thresholds()},
)
