from millstream.scheduler.blocks import BlockPool, chain_digest, root_digest


def fill(pool: BlockPool, tenant: str, tokens: list[int]) -> list[int]:
    """Allocate blocks for full blocks of tokens and register them."""
    blocks = pool.allocate(len(tokens) // pool.block_size)
    digest = root_digest(tenant)
    for index, block in enumerate(blocks):
        digest = chain_digest(digest, tokens[index * pool.block_size : (index + 1) * pool.block_size])
        pool.register(block, digest)
    return blocks


def match(pool: BlockPool, tenant: str, tokens: list[int]) -> list[int]:
    digests = []
    digest = root_digest(tenant)
    for start in range(0, len(tokens) - pool.block_size + 1, pool.block_size):
        digest = chain_digest(digest, tokens[start : start + pool.block_size])
        digests.append(digest)
    return pool.match(digests)


def test_a_released_prefix_is_found_again() -> None:
    pool = BlockPool(8, 4)
    tokens = list(range(12))
    blocks = fill(pool, "a", tokens)
    pool.release(blocks)
    assert pool.used == 0
    assert match(pool, "a", [*tokens, 99]) == blocks


def test_tenants_do_not_share() -> None:
    pool = BlockPool(8, 4)
    fill(pool, "a", list(range(8)))
    assert match(pool, "b", list(range(9))) == []


def test_a_different_start_is_a_different_chain() -> None:
    pool = BlockPool(8, 4)
    fill(pool, "a", [1, 2, 3, 4, 5, 6, 7, 8])
    assert match(pool, "a", [9, 2, 3, 4, 5, 6, 7, 8, 0]) == []


def test_least_recently_used_blocks_are_evicted_ends_first() -> None:
    pool = BlockPool(4, 4)
    old = fill(pool, "a", list(range(8)))
    new = fill(pool, "a", list(range(50, 58)))
    pool.release(old)
    pool.release(new)
    taken = pool.allocate(1)
    assert taken == [old[1]]
    assert match(pool, "a", [*range(8), 0]) == old[:1]
    assert match(pool, "a", [*range(50, 58), 0]) == new


def test_held_blocks_are_not_handed_out() -> None:
    pool = BlockPool(2, 4)
    blocks = fill(pool, "a", list(range(4)))
    pool.release(blocks)
    pool.hold(blocks)
    assert pool.available == 1
    assert pool.allocate(1) != blocks


def test_a_block_is_free_only_after_its_last_reference() -> None:
    pool = BlockPool(1, 4)
    blocks = fill(pool, "a", list(range(4)))
    pool.hold(blocks)
    pool.release(blocks)
    assert pool.available == 0
    pool.release(blocks)
    assert pool.available == 1
