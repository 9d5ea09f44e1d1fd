"""How a result came about: the kind of machine, and the commit."""

import pytest

from regard import origin


@pytest.mark.parametrize(
    ("facts", "wanted"),
    [
        ("model name : AMD EPYC\nflags : fpu avx2 fma\n", "AMD EPYC with AVX2"),
        ("model name : AMD EPYC\nflags : fpu avx2 avx512f\n", "AMD EPYC with AVX-512"),
        ("model name : Old One\nflags : fpu\n", "Old One"),
    ],
)
def test_a_processor_is_told_with_its_widest_units(facts, wanted, monkeypatch, tmp_path):
    (tmp_path / "cpuinfo").write_text(facts)
    monkeypatch.setattr(origin, "CPU_FACTS", tmp_path / "cpuinfo")
    assert origin.processor() == wanted
    assert f", {wanted}, " in origin.machine()


def test_a_system_that_tells_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(origin, "CPU_FACTS", tmp_path / "gone")
    monkeypatch.setattr(origin.platform, "processor", lambda: "")
    assert origin.processor() == "unknown processor"


@pytest.mark.parametrize("folder", ["/some/data", "/some/data/"])
def test_a_command_names_the_variable_instead_of_the_folder_of_the_data(folder, monkeypatch):
    monkeypatch.setenv("REGARD_DATA", folder)
    given = "regard evaluate runs/x /some/data/multi30k/test.en.gz other/some.de"
    wanted = "regard evaluate runs/x $REGARD_DATA/multi30k/test.en.gz other/some.de"
    assert origin.portable(given) == wanted
    assert origin.origin(given, 1, 0.0, None)["command"] == wanted
    monkeypatch.delenv("REGARD_DATA")
    assert origin.portable(given) == given
