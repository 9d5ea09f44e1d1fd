"""What stands in the tables, for times that follow the paper exactly."""

from regard.study.layer_tables import cost_tables, growth_tables, main_table, remarks


def test_the_paper_beside_what_was_found(made_layers):
    rows = {row[0]: row[1:] for row in main_table(made_layers).table.rows}
    assert rows["self-attention"] == ["n² · d", "n^2.00 · d^1.00", "1", "12", "1", "1", "1 (n = 32)"]
    recurrence = rows["recurrence"]
    assert recurrence[:3] == ["n · d²", "n^1.00 · d^2.00", "n"]
    assert recurrence[3:] == ["7 n + 6", "n", "1 · n", "32 (n = 32)"]
    assert rows["convolution"][1] == "n^1.00 · d^2.00 · k^1.00"
    assert rows["convolution"][-1] == "16 (n = 32, k = 3)"
    assert rows["restricted self-attention"][1] == "n^1.00 · d^1.00 · r^1.00"
    assert rows["restricted self-attention"][-2:] == ["2 · n/r", "8 (n = 32, r = 8)"]
    assert rows["dilated convolution"][-2].endswith("· log_k n")


def test_exponents_of_every_sweep(made_layers):
    tables = list(growth_tables(made_layers))
    assert [table.title.split()[2].rstrip(",") for table in tables] == ["n", "n", "d", "k", "r"]
    alone = {row[0]: row[1:] for row in tables[0].table.rows}
    assert alone["self-attention alone, unfused"] == ["2", *["2.00 (2.00)"] * 4]
    assert alone["restricted self-attention alone"] == ["1", *["1.00 (1.00)"] * 4]
    assert len(tables[2].table.rows) == 9


def test_what_was_left_out_is_told(made_layers):
    assert not any("Left out" in line for line in remarks(made_layers))
    skipped = {**made_layers, "skipped": [{"layer": "unfused", "length": 8192}]}
    assert remarks(skipped)[-1].endswith("would not hold it: self-attention, unfused at n = 8,192.")
    points = made_layers["sweeps"]["length"]["layers"]["unfused"]["forward"]
    sweeps = {**made_layers["sweeps"]}
    sweeps["length"] = {
        "by": "n",
        "layers": {
            **sweeps["length"]["layers"],
            "unfused": {
                mode: {**points, "points": points["points"][:1], "time": None, "memory": None}
                for mode in ("forward", "gradient")
            },
        },
    }
    short = {**made_layers, "sweeps": sweeps}
    rows = {row[0]: row[1:] for row in list(growth_tables(short))[1].table.rows}
    assert rows["self-attention, unfused"] == ["2", "–", "–", "–", "–"]
    rows = {row[0]: row[1:] for row in next(iter(cost_tables(short))).table.rows}
    assert rows["self-attention, unfused"][1:] == ["–", "–"]


def test_costs(made_layers):
    tables = list(cost_tables(made_layers))
    assert len(tables) == 8
    rows = {row[0]: row[1:] for row in tables[0].table.rows}
    assert rows["self-attention"] == ["0.0172", "0.2753", "4.404"]  # 1.05e-6 ms · n² · 64
    assert tables[0].table.heads[1:] == ["n = 16", "n = 64", "n = 256"]


def test_remarks(made_layers):
    told = " ".join(remarks(made_layers))
    assert "differ by 10% of its time (median), 10% at most" in told
    assert "1.0e-07 at most, n = 128, 256" in told
