"""Results as rows, as a table and as JSON."""

from __future__ import annotations

import statistics

from problems import Problem
from rounds import Results

OURS = ("qattn high", "qattn fast")


def ratio(turns: list[dict[str, float]], name: str, ours: str) -> float | None:
    """How many times longer than ours a peer takes: the median of the rounds' ratios."""
    ratios = [turn[name] / turn[ours] for turn in turns if name in turn and ours in turn]
    return statistics.median(ratios) if ratios else None


def rows_of(problem: Problem, threads: int, turns: list[dict[str, float]]) -> list[dict]:
    """A row for each contestant, ours first, then the fastest peer."""
    rows = []
    for name in dict.fromkeys(name for turn in turns for name in turn):
        seconds = statistics.median(turn[name] for turn in turns if name in turn)
        rows.append({
            "problem": problem.name, "threads": threads, "name": name,
            "us": round(seconds * 1e6, 2), "TOPS": round(problem.operations / seconds * 1e-12, 4),
            "high": ratio(turns, name, OURS[0]), "fast": ratio(turns, name, OURS[1]),
            "rounds": len(turns)})
    return sorted(rows, key=lambda row: (row["name"] not in OURS, row["us"]))


def as_json(problems: list[Problem], results: Results, context: dict) -> dict:
    rows = [row for (threads, name), turns in results.rounds.items() for problem in problems
            if problem.name == name for row in rows_of(problem, threads, turns)]
    return {"context": context, "versions": results.versions, "missing": results.missing,
            "errors": {name: float(f"{error:.2g}") for name, error in results.errors.items()},
            "rows": rows}


def lines(record: dict) -> list[str]:
    """The table in Markdown."""
    context = record["context"]
    out = [f"{context['kernel']} on {context['machine']}; a ratio is the peer's time over ours, "
           "the median of the rounds' ratios.", ""]
    out += ["| problem | threads | | time | TOPS | to high | to fast |",
            "|---|---:|---|---:|---:|---:|---:|"]

    def times(value: float | None) -> str:
        return "" if value is None else f"{value:.2f}"

    for row in record["rows"]:
        time = f"{row['us']:.1f} us" if row["us"] < 1e4 else f"{row['us'] / 1e3:.1f} ms"
        out.append(f"| {row['problem']} | {row['threads'] or ''} | {row['name']} | {time} "
                   f"| {row['TOPS']:.3g} | {times(row['high'])} | {times(row['fast'])} |")
    out += ["", "Versions: " + "; ".join(f"{name}: {version}"
                                        for name, version in record["versions"].items())]
    out += [f"Missing: {name}: {reason}" for name, reason in record["missing"].items()]
    return out
