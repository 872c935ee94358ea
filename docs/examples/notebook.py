"""Paceline from Python: a script whose `# %%` cells editors and Jupyter (jupytext) run one by one.

It measures a small suite for about ten seconds into a folder of its own.
"""

# %% Measure. What `paceline run` does, and a handle on the record in the place of a table.
import tempfile

import paceline

folder = tempfile.mkdtemp(prefix="paceline-notebook-")
run = paceline.run(
    "collectives/all-reduce",
    runner="local-cpu",
    tier="quick",
    techniques=["ring", "star"],
    filters={"size_bytes": "4KiB"},
    launches=3,
    results=folder,
)
print(run.statuses)
run.check()  # raises if a technique gave a wrong result, crashed or timed out

# %% Measurements: a row for each point, technique, metric and launch, in base units.
rows = run.load()
print(rows.attrs["units"]["latency"])
latency = rows[rows.metric == "latency"]
print(latency.pivot_table(index=["size_bytes", "ranks", "label"], columns="launch", values="value"))

# %% Comparisons: each technique against the baseline of its suite, with an interval and a verdict.
shown = ["size_bytes", "ranks", "technique", "metric", "effect", "low", "high", "verdict", "launches"]
comparisons = run.compare(metrics=["latency"])
print(comparisons[shown].to_string(index=False))

# %% Raw samples, for statistics of your own.
samples = run.load(samples=True)
longest = samples[samples.metric == "latency"].explode("samples").groupby("label").samples.max()
print(longest)

# %% Claims of papers, as the published runs of this checkout and your own decide them.
claims = paceline.show_claims(family="collectives")
print(claims.verdict.value_counts())
