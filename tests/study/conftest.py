"""A made comparison of three rows, the second one better, the third one failed; and a made study of layers."""

import pytest


def made_row(name: str, value: float, **more) -> dict:
    bleu = {"value": value, "label": "BLEU sacreBLEU 13a cased", "signature": "nrefs:1", "text": f"BLEU: {value}"}
    perplexity = {"value": 5.0, "label": "perplexity", "signature": "", "text": "perplexity: 5"}
    figure = {"median": 0.0123, "spread": 0.1}
    names = ("greedy_latency_seconds", "latency_seconds", "sentences_per_second", "tokens_per_second")
    return {
        "name": name,
        "failure": None,
        "kind": "rnn",
        "parameters": 1000,
        "settings": {"model": "rnn, width 8", "rate": None},
        "training": {
            "steps": 20,
            "target_tokens_per_second": 1234.5,
            "curve": {
                "steps": [10, 20],
                "seconds": [700.0, 1400.0],
                "values": {"loss": [3.0, 2.0], "bleu": [5.0, None]},
            },
        },
        "reached": {"seconds": 4000.0, "step": 10},
        "scores": {"bleu": {**bleu, "interval": [value - 1, value + 1]}, "perplexity": perplexity},
        "notes": {},
        "against_first": {},
        "by_length": [
            {"first": 1, "last": 4, "count": 20, "value": value + 2},
            {"first": 5, "last": 5, "count": 30, "value": value - 2},
        ],
        "speed": {**dict.fromkeys(names, figure), "rounds": [{}, {}, {}], "peak_bytes": 3e8},
        "attention": {"text": "b a", "missing": "this model has no attention between input and output"},
        **more,
    }


@pytest.fixture
def comparison() -> dict:
    difference = {"difference": 2.5, "p_value": 0.002, "low": 1, "high": 3, "a": 20, "b": 22.5, "samples": 10}
    looking = {"text": "b a", "map": "cross", "head": 2, "heads": 4, "rows": ["b", "a"], "columns": ["a", "b"]}
    second = made_row(
        "two",
        22.5,
        parameters=1500,
        against_first={"bleu": difference},
        notes={"cut off": 2},
        attention={**looking, "weights": [[0.25, 0.75], [0.5, 0.5]]},
    )
    return {
        "machine": "a machine",
        "threads": 1,
        "test": {"files": ["test.de", "test.en"], "lines": 50},
        "metrics": ["bleu"],
        "first": "one",
        "reach": {"measure": "bleu", "value": 5.0, "weakest": "one"},
        "length_unit": "words",
        "sentence": "a b",
        "fairness": {
            "checks": [
                {"what": "tokenizers", "same": True, "values": {"one": "bpe", "two": "bpe"}},
                {"what": "order of the data", "same": False, "values": {"one": "seed 1", "two": "seed 2"}},
                {"what": "training pairs", "same": True, "values": {"one": "f00", "two": None}},
            ],
            "sizes": {"two": 0.5},
        },
        "rows": [made_row("one", 20.0), second, {"name": "three", "failure": "training diverged"}],
    }


@pytest.fixture(scope="session")
def made_layers() -> dict:
    """A study of layers with times that follow the paper exactly, and counts of real small networks."""
    from regard.study.advice import make_advice
    from regard.study.cost import Cost
    from regard.study.layers import QUICK, Settings, count_paths, count_steps, describe, plan, tell_sweep
    from regard.study.subject import SUBJECTS, Size

    def seconds(name: str, size: Size) -> float:
        n, d, k, r = size.length, size.width, size.kernel, size.neighbourhood
        kind = name.removesuffix(" alone")
        square = {"attention": n * n * d, "unfused": 2 * n * n * d, "restricted": 2 * r * n * d}
        return 1e-9 * {**square, "recurrence": n * d * d, "convolution": k * n * d * d, "dilated": k * n * d * d}[kind]

    settings = Settings(**{**QUICK, "lengths": (16, 64, 256), "width": 64})
    sweeps = plan(settings)
    costs = {}
    for case in (case for sweep in sweeps.values() for case in sweep.cases):
        value = seconds(case.subject, case.size)
        costs[case] = {
            mode: Cost((value, 1.1 * value), round(1e12 * value))
            for mode, value in (("forward", value), ("gradient", 3 * value))
        }
    result = {
        "origin": {"machine": "a <machine>", "threads": 1, "torch": "2", "commit": None, "finished": "today",
                   "command": "regard layers"},
        "settings": settings.model_dump(mode="json"),
        "layers": {name: describe(subject) for name, subject in SUBJECTS.items()},
        "sweeps": {name: tell_sweep(sweep, costs) for name, sweep in sweeps.items()},
        "skipped": [],
        "difference": {"largest": 1e-7, "lengths": [128, 256]},
        "steps": count_steps(settings, lambda *what: None),
        "paths": count_paths(settings, lambda *what: None),
    }  # fmt: skip
    return {**result, "advice": make_advice(result)}
