"""What the golden traces show: one function each, played on `support.traces.Trace`."""

from __future__ import annotations

from support.scripted_runner import repeating
from support.traces import Scenario, Trace


def one_request() -> Trace:
    """A prompt, then its tokens one by one."""
    trace = Trace()
    trace.ask("a", range(6))
    return trace


def a_wave_of_prompts() -> Trace:
    """Prompts that come together share steps in order of arrival and then decode together."""
    trace = Trace()
    for k in range(5):
        trace.ask("abcde"[k], range(10 * k, 10 * k + 5), 3)
    return trace


def chunked_prefill() -> Trace:
    """A long prompt takes what the decodes leave of each step."""
    trace = Trace()
    trace.ask("a", range(4), 8)
    trace.tick()
    trace.ask("long", range(20, 60), 2)
    return trace


def a_prefix_that_is_cached() -> Trace:
    """Full blocks of an earlier prompt are not computed again; the last token always is."""
    trace = Trace()
    trace.ask("first", range(12), 2)
    trace.tick(3)
    trace.ask("second", [*range(12), 50, 51], 2)
    trace.ask("equal", range(12), 2)
    return trace


def prefixes_of_tenants() -> Trace:
    """No tenant hits what another has computed."""
    trace = Trace()
    trace.ask("a", range(12), 2, tenant="A")
    trace.tick(3)
    trace.ask("b", range(12), 2, tenant="B")
    trace.ask("c", range(12), 2, tenant="A")
    return trace


def choices_of_one_prompt() -> Trace:
    """n = 3: the first choice computes the prompt, the others wait for its blocks."""
    trace = Trace()
    for choice in range(3):
        trace.ask(f"n{choice}", range(14), 3, choice=choice)
    return trace


def a_leader_that_leaves() -> Trace:
    """Who waits for a prefix computes it if the one who did has gone."""
    trace = Trace()
    trace.ask("a", range(40), 2)
    trace.ask("b", range(40), 2)
    trace.tick()
    trace.leave("a")
    return trace


def preempt_and_resume() -> Trace:
    """Two answers outgrow the KV cache: the newer one is put back and computed again."""
    trace = Trace(kv_blocks=7)
    trace.ask("old", range(7), 12)
    trace.ask("new", range(20, 27), 12)
    return trace


def preemption_takes_the_lowest_class() -> Trace:
    """Under pressure the worst class leaves first, even if it is the oldest."""
    trace = Trace(kv_blocks=7)
    trace.ask("batch", range(7), 12, priority=5)
    trace.ask("chat", range(20, 27), 12)
    return trace


def waiting_for_a_place() -> Trace:
    """The batch is full: the next one enters when one ends."""
    trace = Trace(max_sequences=2)
    for k in range(4):
        trace.ask("abcd"[k], range(10 * k, 10 * k + 3), 3 + k)
    return trace


def waiting_for_blocks() -> Trace:
    """A large prompt finds no blocks; a small one passes it."""
    trace = Trace(kv_blocks=12)
    trace.ask("runs", range(20), 12)
    trace.tick()
    trace.ask("large", range(50, 80), 1)
    trace.ask("small", range(60, 64), 1)
    return trace


def passing_has_an_end() -> Trace:
    """After ten seconds nobody of the same standing passes it any more."""
    trace = Trace(kv_blocks=12)
    trace.ask("runs", range(20), 20)
    trace.tick()
    trace.ask("large", range(50, 80), 1)
    trace.tick(11)
    trace.ask("small", range(60, 64), 1)
    trace.ask("other", range(70, 74), 1, tenant="other")
    return trace


def cancelled_in_the_queue() -> Trace:
    """A client leaves before its turn."""
    trace = Trace(max_sequences=1)
    trace.ask("a", range(4), 4)
    trace.ask("b", range(10, 14), 4)
    trace.tick(2)
    trace.leave("b")
    return trace


def cancelled_in_prefill() -> Trace:
    """A client leaves while its prompt is computed: its share of the steps is free at once."""
    trace = Trace()
    trace.ask("a", range(60), 4)
    trace.ask("b", range(70, 80), 4, tenant="B")
    trace.tick(2)
    trace.leave("a")
    return trace


def cancelled_in_decode() -> Trace:
    """A client leaves in the middle of its answer."""
    trace = Trace()
    trace.ask("a", range(4), 40)
    trace.ask("b", range(10, 14), 5)
    trace.tick(3)
    trace.leave("a")
    return trace


def a_deadline_in_the_answer() -> Trace:
    """Time is up in the middle: the tokens so far are the answer."""
    trace = Trace()
    trace.ask("a", range(4), 40, timeout=5)
    trace.ask("b", range(10, 14), 8)
    return trace


def a_deadline_in_the_queue() -> Trace:
    """Time is up before the turn has come."""
    trace = Trace(max_sequences=1)
    trace.ask("a", range(4), 8)
    trace.ask("b", range(10, 14), 8, timeout=4)
    return trace


def a_deadline_in_an_outage() -> Trace:
    """Time goes on while there is no engine."""
    trace = Trace()
    trace.ask("a", range(4), 8, timeout=5)
    trace.ask("b", range(10, 14), 8)
    trace.tick(2)
    trace.crash()
    trace.wait(10)
    return trace


def priorities() -> Trace:
    """Lower numbers first, whatever the order of arrival."""
    trace = Trace(max_sequences=1)
    for name, priority in (("low", 5), ("normal", 0), ("high", -5)):
        trace.ask(name, [len(name), priority + 9, 3], 2, priority=priority)
    return trace


def a_better_class_takes_a_place() -> Trace:
    """The batch is full of a worse class: its last one makes room, and goes on from the cache afterwards."""
    trace = Trace(max_sequences=2)
    trace.ask("batch1", range(6), 12, priority=5)
    trace.ask("batch2", range(20, 26), 12, priority=5)
    trace.tick(2)
    trace.ask("chat", range(40, 44), 3)
    return trace


def ageing() -> Trace:
    """A request of a low class is served although better ones never cease to come."""
    trace = Trace(max_sequences=1)
    trace.ask("low", range(3), 1, priority=2)
    for k in range(12):
        trace.ask(f"h{k}", [k, 1, 2], 2)
        trace.tick(2)
    return trace


def fair_shares_of_a_step() -> Trace:
    """B comes later and has its head start; then both share each step, however many requests each has."""
    trace = Trace(step_tokens=512, kv_blocks=3000)
    for k in range(3):
        trace.ask(f"a{k}", range(1000 * k, 1000 * k + 900), 1, tenant="A")
    trace.tick()
    trace.ask("b", range(5000, 7400), 1, tenant="B")
    return trace


def a_short_prompt_beside_a_long_one() -> Trace:
    """Another tenant's short prompt overtakes a long one that is under way."""
    trace = Trace(step_tokens=64, kv_blocks=200)
    trace.ask("long", range(400), 1, tenant="A")
    trace.tick(2)
    trace.ask("short", range(500, 540), 3, tenant="B")
    return trace


def a_short_prompt_of_the_same_tenant() -> Trace:
    """It gets three quarters of the tokens; the long one goes on."""
    trace = Trace(step_tokens=128, kv_blocks=400)
    trace.ask("long", range(800), 1)
    trace.tick(2)
    trace.ask("short", range(900, 1000), 3)
    return trace


def a_stalled_reader() -> Trace:
    """Who does not read loses the place in the batch, not the blocks, and goes on from the cache."""
    trace = Trace(max_sequences=1)
    trace.ask("a", range(6), 12)
    trace.tick(4)
    trace.stall("a")
    trace.ask("b", range(10, 14), 3)
    trace.tick(3)
    trace.read_on("a")
    return trace


def a_stalled_reader_under_pressure() -> Trace:
    """Its blocks are taken by others and computed again."""
    trace = Trace(kv_blocks=8)
    trace.ask("a", range(14), 12)
    trace.tick(4)
    trace.stall("a")
    trace.ask("b", range(30, 54), 8)
    trace.tick(5)
    trace.read_on("a")
    return trace


def an_operators_pause() -> Trace:
    """A held request gives its place to others, and goes on from the cache when it is released."""
    trace = Trace(max_sequences=1)
    trace.ask("a", range(6), 12)
    trace.tick(4)
    trace.hold("a")
    trace.ask("b", range(10, 14), 3)
    trace.tick(4)
    trace.release("a")
    return trace


def a_pause_with_two_reasons() -> Trace:
    """A request whose reader stalls and which an operator holds goes on when neither is so any more."""
    trace = Trace()
    trace.ask("a", range(6), 6)
    trace.tick(2)
    trace.stall("a")
    trace.hold("a")
    trace.tick()
    trace.read_on("a")
    trace.tick()
    trace.release("a")
    return trace


def a_hold_outlives_the_engine() -> Trace:
    """The engine ends while a request is held: the next one is given it when it is released."""
    trace = Trace()
    trace.ask("a", range(6), 6)
    trace.ask("b", range(20, 24), 8)
    trace.tick(3)
    trace.hold("a")
    trace.tick()
    trace.crash()
    trace.tick(3)
    trace.release("a")
    return trace


def a_request_is_raised() -> Trace:
    """An operator puts a waiting request before those that came earlier: it takes the place of one that runs."""
    trace = Trace(max_sequences=1)
    trace.ask("a", range(6), 6)
    trace.tick(2)
    trace.ask("b", range(10, 14), 2)
    trace.ask("c", range(20, 24), 2)
    trace.tick()
    trace.reprioritise("c", -1)
    return trace


def a_request_is_lowered() -> Trace:
    """An operator puts a running request into a worse class: it makes room for what waits. The class holds in the next
    engine process too."""
    trace = Trace(max_sequences=1)
    trace.ask("a", range(6), 9)
    trace.tick(2)
    trace.ask("b", range(10, 14), 3, priority=1)
    trace.tick()
    trace.reprioritise("a", 4)
    trace.tick(2)
    trace.crash()
    trace.ask("c", range(20, 24), 2, priority=2)
    return trace


def crash_and_resume() -> Trace:
    """The engine ends in the middle: prompts and tokens so far are read again, and every answer goes on."""
    trace = Trace()
    trace.ask("a", range(6), 8)
    trace.ask("b", range(20, 24), 8)
    trace.tick(3)
    trace.tick(lost=True)
    trace.crash()
    return trace


def a_request_that_ends_the_engine() -> Trace:
    """Who was in two crashed batches is tried alone, and given up after the third; the others go on."""
    trace = Trace()
    trace.ask("a", range(6), 30)
    trace.ask("poison", range(20, 24), 30)
    for _ in range(2):
        trace.tick(lost=True)
        trace.crash()
    trace.tick(16)
    trace.tick(lost=True)
    trace.crash()
    return trace


def speculation() -> Trace:
    """A text that repeats itself is drafted ever further, until it does not."""
    trace = Trace(model=repeating(12))
    trace.ask("a", range(12), 40)
    return trace


def speculation_beside_prompts() -> Trace:
    """While prompts are computed nothing is drafted."""
    trace = Trace(model=repeating(6))
    trace.ask("a", range(6), 40)
    trace.tick(11)
    trace.ask("b", range(40, 80), 2)
    return trace


def forced_stretches() -> Trace:
    """What a grammar leaves no choice about is appended unsampled and runs as one chunk with what follows."""
    trace = Trace()
    trace.ask("a", range(6), 24, grammar="5 of 8")
    trace.ask("b", range(20, 24), 6)
    return trace


def forced_stretches_beside_prompts_and_a_crash() -> Trace:
    """Prompts keep half of a step beside stretches; the next engine process goes on in the middle of one."""
    trace = Trace()
    trace.ask("a", range(6), 40, grammar="7 of 8")
    trace.ask("b", range(20, 26), 40, grammar="7 of 8")
    trace.tick(2)
    trace.ask("long", range(40, 70), 2)
    trace.tick(2)
    trace.tick(lost=True)
    trace.crash()
    return trace


def a_crash_in_prefill() -> Trace:
    """The engine ends while a long prompt is computed: what was computed is lost, what was said is not."""
    trace = Trace()
    trace.ask("a", range(4), 8)
    trace.ask("long", range(20, 60), 3)
    trace.tick(3)
    trace.crash()
    return trace


SCENARIOS: dict[str, Scenario] = {
    name: value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__module__", None) == __name__
}
