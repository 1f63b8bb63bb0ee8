"""Values of processes through a collective that takes as many bytes of each: short ones at once, longer again."""

import pytest

from parity.contract import gather_values


def told(values):
    """Return what each process is told, and the sizes that were asked for; processes meet in turn, by number."""
    asked, rounds = [], []

    def given(number, at):
        """Return what a process gives in a round: run until then with what the rounds before gave."""
        seen = []

        def gather(data, size):
            seen.append((data, size))
            if len(seen) > at:
                raise StopIteration
            return rounds[len(seen) - 1]

        try:
            return gather_values(values[number], gather)
        except StopIteration:
            asked.append(seen[-1][1])
            return seen[-1]

    for at in range(3):
        every = [given(number, at) for number in range(len(values))]
        if not isinstance(every[0], tuple):
            return every, asked
        sizes = {size for _, size in every}
        assert len(sizes) == 1, "all ask for one size"
        size = sizes.pop()
        rounds.append([data[:size].ljust(size, b"\0") for data, _ in every])
    raise AssertionError("more than two rounds")


@pytest.mark.parametrize("length", [0, 1, 245, 246, 247, 248, 249, 5000])
def test_all_are_told_all_values_whatever_their_length(length):
    """A text of JSON has two quotes: with 246 characters it is the longest that crosses at once."""
    values = [{"a": None}, "x" * length, [1, 2.5, "é"]]
    every, asked = told(values)
    assert every == [values] * 3
    assert len(asked) == (3 if length <= 246 else 6)


def test_a_process_that_is_not_told_gets_nothing_and_a_row_too_few_is_an_error():
    def short(data, size):
        return [data[:size].ljust(size, b"\0")] * 2

    long = "x" * 300
    assert gather_values(long, short, lambda data, size: []) == []
    with pytest.raises(ValueError, match=r"zip\(\) argument 2 is longer"):
        gather_values(long, short, lambda data, size: short(data, size)[:1])
