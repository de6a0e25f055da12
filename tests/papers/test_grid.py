"""Tasks on one or several processes: every outcome comes, failures do not stop the rest."""

import pytest
from grid_tasks import die, square

from advnorm.papers.grid import spread


def check(outcomes) -> None:
    found = {outcome.number: outcome for outcome in outcomes}
    assert {n: o.result for n, o in found.items()} == {0: 0, 1: 1, 2: None, 3: 9}
    assert found[2].failure == "ValueError: two is not wanted"
    assert not found[3].failure


def test_one_failure_does_not_stop_the_rest():
    check(spread(square, range(4)))


@pytest.mark.slow
@pytest.mark.ci
def test_two_processes_give_the_same():
    check(spread(square, range(4), on=2))


@pytest.mark.slow
def test_a_process_that_dies_is_named_and_the_rest_goes_on():
    found = {o.number: o for o in spread(die, range(4), on=2)}
    assert set(found) == {0, 1, 2, 3}
    assert found[1].result is None
    assert "died" in found[1].failure
    assert [found[n].result for n in (0, 2, 3)] == [0, 2, 3]


@pytest.mark.slow
def test_a_real_local_ray_of_two_workers_gives_the_same():
    ray = pytest.importorskip("ray")
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100_000_000,
        _node_ip_address="127.0.0.1",
    )
    try:
        check(spread(square, range(4), on="ray"))
    finally:
        ray.shutdown()
