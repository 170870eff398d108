from hypothesis import given
from hypothesis import strategies as st

from millstream.engine.messages import Abort, FrameReader, Submit, command_decoder, frame
from millstream.engine.protocol import SamplingParams, TokenRequest


@given(st.lists(st.text(max_size=40), max_size=8), st.lists(st.integers(1, 30), max_size=20))
def test_frames_survive_any_cut(ids: list[str], cuts: list[int]) -> None:
    stream = b"".join(frame(Abort(each)) for each in ids)
    reader = FrameReader()
    bodies = []
    for cut in cuts:
        bodies += reader.feed(stream[:cut])
        stream = stream[cut:]
    bodies += reader.feed(stream)
    assert [command_decoder.decode(body) for body in bodies] == [Abort(each) for each in ids]


def test_a_request_crosses_the_socket_unchanged() -> None:
    request = TokenRequest(
        id="a",
        prompt=[1, 2],
        sampling=SamplingParams(temperature=0.5, logit_bias={3: -1.5}, seed=2**64 - 1, logprobs=2),
        max_tokens=5,
        stop_ids=(7,),
        tenant="t",
        output=[9],
    )
    (body,) = FrameReader().feed(frame(Submit(request)))
    assert command_decoder.decode(body) == Submit(request)
