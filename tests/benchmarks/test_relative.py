"""The ratio by which the peers' benchmark judges is a quotient of two ratios to the peer."""

import pytest

from benchmarks import test_peers

SECONDS = {"twin": 1.1, "bare": 1.0, "lightning": 3.0, "lean lightning": 2.0}


def judged():
    (found,) = [ratio for ratio in test_peers.ratios("lightning") if ratio.bar is not None]
    return found


def test_the_peers_benchmark_judges_the_quotient_and_records_both_ratios():
    figures = {ratio.name: ratio.take(SECONDS) for ratio in test_peers.ratios("lightning")}
    assert figures == pytest.approx(
        {
            "twin / lightning over bare / lightning": 1.1,
            "twin over lightning": 3.0 / 1.1,
            "bare over lightning": 3.0,
            "twin over lean lightning": 2.0 / 1.1,
            "bare over lean lightning": 2.0,
        }
    )
    assert judged().take(SECONDS) == pytest.approx(figures["bare over lightning"] / figures["twin over lightning"])
    assert judged().better == "lower"


def test_the_judged_ratio_follows_the_bare_loop_and_not_the_peer():
    assert judged().take({**SECONDS, "bare": 2.0}) == pytest.approx(0.55)
    assert judged().take({**SECONDS, "lightning": 300.0}) == pytest.approx(1.1)


def test_the_bar_of_the_peers_is_the_same_for_every_speed():
    assert {judged().bar_at({**SECONDS, "bare": seconds}) for seconds in (0.1, 1.0, 10.0)} == {1.03}
