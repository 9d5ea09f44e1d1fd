"""Sentences about costs that are known: n² d, n d², k n d² and 2 r n d at d = 64, k = 3, r = 32."""

import copy

from regard.study.advice import make_advice, needed_layers, rounded, tell_cheapest, tell_crossing, tell_memory


def sweep(by: str, **costs: dict[int, float]) -> dict:
    def points(found):
        return {"points": [{"at": at, "seconds": cost, "bytes": 1} for at, cost in found.items()]}

    return {"by": by, "layers": {name: {"gradient": points(found)} for name, found in costs.items()}}


def test_crossings_are_those_of_the_formulas(made_layers):
    lengths, widths = (made_layers["sweeps"][name] for name in ("length", "width"))
    said = tell_crossing(lengths, "gradient", "attention", "recurrence")
    assert said == "self-attention is cheaper than a recurrence up to about n = 64 and dearer beyond"
    assert "up to about n = 190 and dearer" in tell_crossing(lengths, "gradient", "attention", "convolution")
    assert "than a recurrence up to about d = 64 and cheaper" in tell_crossing(
        widths, "gradient", "attention", "recurrence"
    )


def test_no_crossing():
    found = sweep("n", attention={1: 1.0, 2: 2.0}, recurrence={1: 4.0, 2: 5.0}, restricted={1: 1.05, 2: 1.9})
    said = tell_crossing(found, "gradient", "attention", "recurrence")
    assert said == "self-attention is cheaper than a recurrence at n = 1 to 2, taking 0.25 to 0.4 times its time"
    assert "cost about the same" in tell_crossing(found, "gradient", "attention", "restricted")


def test_several_crossings():
    costs = {1: 1.0, 2: 9.0, 4: 1.0, 8: 9.0}
    even = dict.fromkeys(costs, 3.0)
    said = tell_crossing(sweep("n", attention=costs, recurrence=even), "gradient", "attention", "recurrence")
    assert "cheaper than a recurrence up to about n = 1 to 6 and dearer beyond" in said
    short = {n: cost for n, cost in costs.items() if n < 8}
    said = tell_crossing(sweep("n", attention=short, recurrence=even), "gradient", "attention", "recurrence")
    assert "self-attention and a recurrence take turns at n = 1 to 4" in said


def test_the_cheapest_by_length():
    found = sweep(
        "n", attention={1: 1.0, 4: 16.0, 16: 256.0}, recurrence={1: 2.0, 4: 8.0, 16: 32.0},
        convolution={1: 9.0, 4: 9.0, 16: 9.0}, restricted={1: 99.0, 4: 99.0, 16: 99.0},
    )  # fmt: skip
    said = tell_cheapest(found, "gradient")
    assert said.startswith(
        "the least time is that of self-attention up to about n = 2, then a recurrence up to about n"
    )
    assert said.endswith("then a convolution.")
    del found["layers"]["attention"]["gradient"]["points"][1:]
    assert "at every length from 1 to 1" in tell_cheapest(found, "gradient")


def test_layers_that_join_all():
    path = {"letter": "k", "law": {"name": "n/k", "constant": 1.5}}
    assert needed_layers(path, 60, {"k": 3}) == 30
    assert needed_layers(path, 1, {"k": 3}) == 1
    assert needed_layers(path, 61, {"k": 3}) == 31, "there is no half layer"


def test_what_did_not_fit_is_told(made_layers):
    sweep = copy.deepcopy(made_layers["sweeps"]["length"])
    sweep["layers"]["unfused"]["gradient"]["points"] = []
    assert "did not fit into the memory" in tell_memory(sweep)


def test_all_of_it(made_layers):
    advice = make_advice(made_layers)
    assert advice == made_layers["advice"]
    assert len(advice) == 8
    assert all(line[0].isupper() and line.endswith(".") for line in advice)
    assert any("as many layers as it takes" in line for line in advice)


def test_rounded():
    assert [rounded(value) for value in (1234.5, 64, 7.4)] == ["1,200", "64", "7"]
