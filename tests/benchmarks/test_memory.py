"""Names of the ratios of peak memory: arms of one test stand in one table."""

from benchmarks.memory import copies_of


def test_the_peak_of_the_twin_is_told_from_that_of_other_saves():
    names = {copies_of(how).name for how in ("twin", "torch.save", "orbax")}
    assert names == {f"peak memory of {how} / state" for how in ("twin", "torch.save", "orbax")}
    assert copies_of("twin", 1.0).bar == 1.0
