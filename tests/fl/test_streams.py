"""Streams: same name, same draws; another name, independent draws; nothing global moves."""

import itertools
import pickle

import numpy as np
import pytest
import torch
from fedassay.fl.streams import Streams, normal, row_generators, uniform


def _first_word(rng: np.random.Generator) -> int:
    return int(rng.bit_generator.random_raw())


def test_the_stream_of_round_3_client_11_is_pinned():
    raw = Streams(7).generator("noise", round=3, client=11).bit_generator.random_raw(3)
    assert [int(word) for word in raw] == [0x8AC2E25120A18DCF, 0x03CD0DBE416BA197, 0xF2ABA613695BE75]


def test_a_stream_is_numpys_generator_of_its_key_and_a_copy_goes_on_like_it():
    stream = Streams(7).generator("noise", round=3, client=11)
    key = sum(int(word) << 64 * place for place, word in enumerate(stream.bit_generator.state["state"]["key"]))
    again, copied = np.random.Generator(np.random.Philox(key=key)), pickle.loads(pickle.dumps(stream))
    assert stream.random(3).tolist() == again.random(3).tolist() == copied.random(3).tolist()


def test_normals_of_the_pinned_stream_are_known():
    drawn = normal(Streams(7).generator("noise", round=3, client=11), (3,), dtype=torch.float64)
    assert drawn.tolist() == pytest.approx([-0.73234499, -0.20138501, 0.69259591], abs=1e-8)


def test_the_same_name_gives_the_same_draws_whatever_was_drawn_before():
    streams = Streams(5)
    first = streams.generator("noise", client=2).standard_normal(100)
    streams.generator("noise", client=1).standard_normal(7)
    np.testing.assert_array_equal(Streams(5).generator("noise", client=2).standard_normal(100), first)


def test_every_combination_of_purpose_and_numbers_is_a_stream_of_its_own():
    words = {
        _first_word(
            Streams(seed).generator(purpose, replicate=replicate, arm=arm, round=number, client=client, step=step)
        )
        for seed, replicate, arm, number, client, step in itertools.product(range(3), repeat=6)
        for purpose in ("noise", "init")
    }
    assert len(words) == 2 * 3**6


def test_a_purpose_that_looks_like_numbers_is_confused_with_none():
    names = [("a", 1, 0), ("0:a", 1, 0), ("1:a", 0, 0), ("a", 0, 1), ("0:1:a", 0, 0), ("a", 11, 0), ("1a", 1, 0)]
    words = {_first_word(Streams(1).generator(purpose, client=client, step=step)) for purpose, client, step in names}
    assert len(words) == len(names)


def test_all_bits_of_the_seed_count():
    """Those above the 32nd, which PyTorch leaves out, and above the 64th."""
    words = {_first_word(Streams(seed).generator("noise")) for seed in (1, 1 + 2**32, 1 + 2**64)}
    assert len(words) == 3


def test_neighbouring_clients_draw_uncorrelated_noise():
    draws = np.stack([Streams(0).generator("noise", client=client).standard_normal(1000) for client in range(300)])
    z = (draws[1:] * draws[:-1]).sum() / np.sqrt(draws[1:].size)
    assert abs(z) < 4  # One seed in 16,000 would fail; this one is fixed.


def test_neither_numpy_nor_torch_global_generators_move():
    numpy_before, torch_before = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    normal(Streams(3).generator("noise"), (10,))
    uniform(Streams(3).generator("noise"), (10,))
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_before)  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), torch_before)


@pytest.mark.parametrize(("dtype", "numpy_dtype"), [(torch.float32, np.float32), (torch.float64, np.float64)])
def test_normal_and_uniform_are_numpys_draws_as_tensors(dtype, numpy_dtype):
    for draw, method in ((normal, "standard_normal"), (uniform, "random")):
        drawn = draw(Streams(1).generator("noise"), (4, 3), dtype=dtype)
        expected = getattr(Streams(1).generator("noise"), method)((4, 3), dtype=numpy_dtype)
        assert drawn.dtype == dtype
        np.testing.assert_array_equal(drawn.numpy(), expected)


def test_an_empty_shape_draws_one_number_without_dimensions():
    assert normal(Streams(1).generator("noise"), ()).shape == ()


def test_normals_have_mean_0_and_variance_1_and_uniforms_fill_the_unit_interval():
    normals = normal(Streams(2).generator("noise"), (100_000,), dtype=torch.float64)
    uniforms = uniform(Streams(2).generator("noise"), (100_000,), dtype=torch.float64)
    assert abs(float(normals.mean())) < 4 / 100_000**0.5
    assert abs(float(normals.var()) - 1) < 4 * (2 / 100_000) ** 0.5
    assert abs(float(uniforms.mean()) - 0.5) < 4 / (12 * 100_000) ** 0.5
    assert 0 <= float(uniforms.min()) < 1e-3
    assert 1 - 1e-3 < float(uniforms.max()) < 1


def test_rows_have_generators_of_their_own_in_blocks_and_all_at_once():
    """And how much a row draws changes no other row."""
    whole = [rng.random() for rng in row_generators(np.random.default_rng(1), 5)]
    again, parts = np.random.default_rng(1), list[float]()
    for rows in (2, 1, 2):
        for rng in row_generators(again, rows):
            parts.append(rng.random())
            rng.random(len(parts))
    assert parts == whole
    assert len(set(whole)) == 5
    other = np.random.default_rng(1)
    list(row_generators(other, 5))
    assert other.random() == again.random()


def test_a_numpy_integer_names_the_same_stream_as_a_python_integer():
    streams = Streams(1)
    assert _first_word(streams.generator("noise", client=np.int64(4))) == _first_word(
        streams.generator("noise", client=4)
    )


def test_errors_name_the_field_and_show_the_value():
    with pytest.raises(ValueError, match="seed must be >= 0, got -1"):
        Streams(-1)
    with pytest.raises(ValueError, match="client must be >= 0, got -2"):
        Streams(0).generator("noise", client=-2)
    with pytest.raises(TypeError, match=r"round must be an integer, got 1\.0"):
        Streams(0).generator("noise", round=1.0)
    with pytest.raises(ValueError, match="purpose must name what is drawn"):
        Streams(0).generator("")
    with pytest.raises(ValueError, match=r"dtype must be torch\.float32 or torch\.float64, got torch\.float16"):
        normal(Streams(0).generator("noise"), (1,), dtype=torch.float16)
