"""The order of service: classes that age, shares between tenants, short prompts beside long ones."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from millstream.scheduler.policy import QUANTUM, SHORTEST_SHARE, Shares, Turns, priority_class

AGEING = 10.0
HEAD_START = 100


class Prompt(msgspec.Struct, eq=False):
    """A sequence that wants ``pending`` tokens computed."""

    order: int
    pending: int
    tenant: str = ""
    priority: int = 0
    since: float = 0.0


def served(prompts: list[Prompt], budget: int, shares: Shares, now: float = 0.0) -> dict[int, int]:
    """Tokens that each prompt gets of one step's budget, by its order; they are charged and taken from the prompts."""
    best = min(prompt.priority for prompt in prompts)
    turns = Turns(prompts, shares, now, best=best, ageing_seconds=AGEING)
    got: dict[int, int] = {}
    while budget and (prompt := turns.next()):
        count = min(QUANTUM, budget, prompt.pending - got.get(prompt.order, 0))
        got[prompt.order] = got.get(prompt.order, 0) + count
        budget -= count
        turns.grant(count, count, done=got[prompt.order] == prompt.pending)
    for prompt in prompts:
        prompt.pending -= got.get(prompt.order, 0)
        shares.charge(prompt.tenant, prompt=got.get(prompt.order, 0))
    prompts[:] = [prompt for prompt in prompts if prompt.pending]
    return got


def test_a_better_class_takes_everything_it_wants() -> None:
    prompts = [Prompt(1, 500, priority=1), Prompt(2, 200, priority=0)]
    assert served(prompts, 256, Shares(HEAD_START)) == {2: 200, 1: 56}


def test_a_class_is_gained_for_each_ageing_time_up_to_the_best_that_is_present() -> None:
    prompt = Prompt(1, 1, priority=5, since=100.0)
    assert [priority_class(prompt, now, -2, AGEING) for now in (100, 109.9, 110, 169, 1000)] == [5, 5, 4, -1, -2]


def test_ageing_does_not_let_a_flood_outrank_the_next_request_of_another() -> None:
    shares = Shares(HEAD_START)
    flood = [Prompt(order, 300, "flood") for order in range(50)]
    for _ in range(10):
        served(flood, 256, shares)
    shares.join("other", ["flood"])
    got = served([*flood, Prompt(99, 60, "other", since=1000.0)], 256, shares, now=1000.0)
    assert got[99] == 60


def test_a_low_class_is_served_in_the_end_although_better_requests_never_cease() -> None:
    shares = Shares(HEAD_START)
    low = Prompt(0, 64, "low", priority=3)
    for step in range(100):
        fresh = Prompt(step + 1, 1000, "high", since=float(step))
        served([low, fresh], 256, shares, now=float(step))
        if not low.pending:
            break
    assert step == 30


def test_tenants_share_by_tokens_and_not_by_requests() -> None:
    shares = Shares(0)
    many = [Prompt(order, 10_000, "many") for order in range(9)]
    one = [Prompt(9, 10_000, "one")]
    for _ in range(20):
        served([*many, *one], 256, shares)
    assert abs(shares.served("many") - shares.served("one")) <= QUANTUM


def test_output_costs_more_than_input() -> None:
    shares = Shares(0)
    shares.charge("reads", prompt=100)
    shares.charge("writes", output=60)
    prompts = [Prompt(1, 100, "writes"), Prompt(2, 100, "reads")]
    assert served(prompts, QUANTUM, shares) == {2: QUANTUM}


def test_time_without_requests_is_not_saved_up() -> None:
    shares = Shares(HEAD_START)
    shares.join("busy", [])
    shares.charge("busy", prompt=50_000)
    shares.join("back", ["busy"])
    assert shares.served("back") == 50_000 - HEAD_START


def test_the_head_start_is_not_given_twice() -> None:
    shares = Shares(HEAD_START)
    shares.join("busy", [])
    shares.join("often", ["busy"])
    for _ in range(5):
        shares.charge("often", prompt=HEAD_START)
        shares.join("often", ["busy"])
    assert shares.served("often") == 4 * HEAD_START


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 400)), min_size=1, max_size=60))
def test_no_tenant_is_ahead_of_one_that_waits_by_more_than_its_head_start(arrivals: list[tuple[str, int]]) -> None:
    """However they come: while "slow" waits all the time, what another got since then is bounded by what it got."""
    shares = Shares(HEAD_START)
    slow = Prompt(0, 10**9, "slow")
    shares.join("slow", [])
    prompts: list[Prompt] = []
    got = dict.fromkeys(("a", "b", "slow"), 0)
    for order, (tenant, length) in enumerate(arrivals, 1):
        shares.join(tenant, ["slow", *(prompt.tenant for prompt in prompts)])
        prompts.append(Prompt(order, length, tenant))
        tenants = {prompt.order: prompt.tenant for prompt in prompts} | {0: "slow"}
        everyone = [slow, *prompts]
        for each, tokens in served(everyone, 128, shares).items():
            got[tenants[each]] += tokens
        prompts = [prompt for prompt in everyone if prompt is not slow]
        for tenant in "ab":
            assert got[tenant] <= got["slow"] + HEAD_START + QUANTUM


def test_a_short_prompt_is_not_stuck_behind_a_long_one_of_the_same_tenant() -> None:
    shares = Shares(HEAD_START)
    assert served([Prompt(1, 30_000), Prompt(2, 96)], 128, shares) == {2: 96, 1: 32}


@given(st.integers(1, 40), st.integers(1, 300))
def test_the_oldest_always_gets_its_part(others: int, budget: int) -> None:
    shares = Shares(HEAD_START)
    prompts = [Prompt(0, 10**6), *(Prompt(order, 10**5) for order in range(1, others + 1))]
    got = [served(prompts, budget, shares) for _ in range(40)]
    assert sum(each.get(0, 0) for each in got) >= 40 * budget / (SHORTEST_SHARE + 1) - QUANTUM


def test_equal_prompts_are_finished_in_order_of_arrival() -> None:
    prompts = [Prompt(order, 100) for order in range(8)]
    assert served(prompts, 256, Shares(HEAD_START)) == {0: 100, 1: 100, 2: 56}
