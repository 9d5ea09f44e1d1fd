"""Finding the peers."""

from benchmarks.installed import choose, find_peers


def test_the_newest_of_several_is_taken_and_the_rest_is_missing():
    found = choose(
        [("one", {"ctranslate2": "4.9.0"}), ("two", {"ctranslate2": "4.10.1", "eole": "0.6.4"}), ("three", {})]
    )
    assert sorted(found) == ["CTranslate2", "eole"]
    assert (found["CTranslate2"].python, found["CTranslate2"].version) == ("two", "4.10.1")
    assert found["eole"].module == "benchmarks.peers.eole"


def test_a_folder_without_environments_has_no_peers(tmp_path):
    (tmp_path / "notes").mkdir()
    assert set(find_peers(tmp_path)) == set(find_peers(None))


def test_an_environment_that_does_not_start_is_passed_over(tmp_path):
    broken = tmp_path / "broken" / "bin" / "python"
    broken.parent.mkdir(parents=True)
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    assert set(find_peers(tmp_path)) == set(find_peers(None))
